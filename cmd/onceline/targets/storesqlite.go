package targets

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/sqlite"
)

// makeFolder makes a folder for a database, in memory where there is such a place: what
// a killed process had committed is there too, and only a machine that loses its power
// would miss the disk, for which hundreds of commits would wait.
func makeFolder(context.Context) (string, func() error, error) {
	const memory = "/dev/shm" // of Linux
	dir, err := os.MkdirTemp(memory, "onceline-store-")
	if err != nil {
		dir, err = os.MkdirTemp("", "onceline-store-")
	}
	return dir, func() error { return os.RemoveAll(dir) }, err
}

// openSQLite opens the database in a folder. It has no answer that could be lost, so a
// wrapper of its store loses them.
func openSQLite(ctx context.Context, dir string) (*database, error) {
	store, err := sqlite.Open(ctx, filepath.Join(dir, "effects.db"), sqlite.Options{})
	if err != nil {
		return nil, err
	}
	l := &losing{Store: store}
	d := &database{PositionDriver: l, calls: store, db: store.DB(), consumer: "probe", lose: &l.lose, close: store.Close}
	if _, err = d.db.ExecContext(ctx, d.texts("")); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return d, nil
}

// losing is a store that can lose the answer to a commit that took place.
type losing struct {
	*sqlite.Store
	lose atomic.Bool
}

func (l *losing) Transact(ctx context.Context, f func(*sql.Tx) error) error {
	err := l.Store.Transact(ctx, f)
	if err == nil && l.lose.Swap(false) {
		return fmt.Errorf("%w: by the probe", dedup.ErrCommitUnknown)
	}
	return err
}
