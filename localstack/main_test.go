package localstack_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/onceline/onceline/localstack"
	"go.uber.org/goleak"
)

// unwired makes a child behave like a program that does not call RunIfChild.
const unwired = "LOCALSTACK_TEST_UNWIRED"

func TestMain(m *testing.M) {
	if os.Getenv(unwired) != "" {
		fmt.Println("PASS")
		os.Exit(0)
	}
	localstack.RunIfChild()
	goleak.VerifyTestMain(m)
}
