package sqs

import (
	"os"
	"testing"

	"github.com/onceline/onceline/internal/sidebyside"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	sidebyside.Tests(4)
	stop := startShared()
	code := m.Run()
	stop()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			println(err.Error())
			code = 1
		}
	}
	os.Exit(code)
}
