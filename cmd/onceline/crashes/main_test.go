package crashes

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	RunIfConsumer()
	goleak.VerifyTestMain(m)
}
