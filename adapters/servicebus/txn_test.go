package servicebus

import (
	"errors"
	"strings"
	"testing"

	"github.com/onceline/onceline/broker"
)

func TestNoTransactions(t *testing.T) {
	t.Parallel()
	c := start(t).dial(t)
	if _, err := broker.OpenTransactor(t.Context(), c, "x"); !errors.Is(err, broker.ErrUnsupported) || !strings.Contains(err.Error(), "SB-F-300") {
		t.Errorf("open: %v", err)
	}
	if o, err := broker.RecoverTransaction(t.Context(), c, []byte("x"), true); !errors.Is(err, broker.ErrUnsupported) || o.State != broker.Unknown {
		t.Errorf("recover: %v, %v", o, err)
	}
}
