package crashes

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/onceline/onceline/internal/sidebyside"
)

func TestMain(m *testing.M) {
	RunIfConsumer()
	sidebyside.Tests(4)
	goleak.VerifyTestMain(m)
}
