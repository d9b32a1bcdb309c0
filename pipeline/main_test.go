package pipeline_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/onceline/onceline/internal/sidebyside"
	"github.com/onceline/onceline/localstack"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	localstack.RunIfChild()
	if os.Getenv(childFile) != "" {
		if err := child(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	sidebyside.Tests(4)
	goleak.VerifyTestMain(m)
}
