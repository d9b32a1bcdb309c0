package crashes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/onceline/onceline/localstack"
)

// Plan is what is to be run.
type Plan struct {
	Cells []Cell
	Wrong []WrongCell
	// Parallel is how many cells run at a time, beside those that share a restart. Zero
	// means 12.
	Parallel int
	// Progress is told of what is done now, and Finished of each cell when it is, both
	// from several goroutines. Either may be nil.
	Progress func(what string)
	Finished func(r *Result, shows *WrongCell)
}

// Report is what came out.
type Report struct {
	Results []*Result
	Wrong   []*WrongResult
	// Absent says of each server that isn't installed what is missing: nothing was asked
	// of its stores.
	Absent map[string]string
	Took   time.Duration
}

// WrongResult is what came out of a wrong store's cell.
type WrongResult struct {
	*Result
	Shows Seen
}

// OK reports whether the anomaly was seen.
func (w *WrongResult) OK() bool {
	return w.Err == nil && slices.ContainsFunc(w.Rounds, func(r Round) bool {
		return r.Effects == w.Shows || r.Blocked && w.Shows == Never
	})
}

// matrix is a plan that runs.
type matrix struct {
	Plan
	names   map[Cell]string
	taking  sync.Mutex // places
	mu      sync.Mutex
	servers map[string]*server // of those that aren't restarted, and with "restart " of those that are
	report  Report
	errs    []error
}

// Run runs a plan. It blocks until all of it is done and has been cleaned up, or ctx has
// ended. The error is what prevented it from being run; what the cells found is in the
// report.
func Run(ctx context.Context, p Plan) (report *Report, err error) {
	began := time.Now()
	if p.Parallel <= 0 {
		p.Parallel = 12
	}
	m := &matrix{Plan: p, names: map[Cell]string{}, servers: map[string]*server{}, report: Report{Absent: map[string]string{}}}
	defer func() {
		for _, s := range m.servers {
			err = errors.Join(err, s.close())
		}
	}()
	m.start(ctx)
	if err := errors.Join(m.errs...); err != nil {
		return nil, err
	}
	m.run(ctx)
	m.report.Took = time.Since(began)
	if ctx.Err() != nil {
		m.fail(fmt.Errorf("interrupted: %w", context.Cause(ctx)))
	}
	return &m.report, errors.Join(m.errs...)
}

func (m *matrix) fail(err error) {
	if err == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.errs = append(m.errs, err)
}

func (m *matrix) say(format string, a ...any) {
	if m.Progress != nil {
		m.Progress(fmt.Sprintf(format, a...))
	}
}

const restarted = "restart "

// start starts the servers that the cells need, each once, and once more for those that
// restart it.
func (m *matrix) start(ctx context.Context) {
	needed := map[string]string{}
	need := func(c Cell) {
		s, _ := storeNamed(c.Store)
		if c.Applies() != "" || s.Server == "" {
			return
		}
		key := s.Server
		if c.Disturbance == Restart {
			key = restarted + s.Server
		}
		needed[key] = s.Server
	}
	for _, c := range m.Cells {
		need(c)
	}
	for _, c := range m.Wrong {
		need(c.Cell)
	}
	var starting sync.WaitGroup
	for key, name := range needed {
		starting.Go(func() {
			m.say("starting %s", name)
			s, err := startServer(ctx, name, func(step string) { m.say("%s: %s", name, step) })
			m.mu.Lock()
			defer m.mu.Unlock()
			switch {
			case errors.Is(err, localstack.ErrNotInstalled):
				m.report.Absent[name] = err.Error()
			case err != nil:
				m.errs = append(m.errs, fmt.Errorf("%s: %w", name, err))
			default:
				m.servers[key] = s
			}
		})
	}
	starting.Wait()
}

// server returns that of a cell, and false if it isn't installed. SQLite has none.
func (m *matrix) server(c Cell) (*server, bool) {
	s, _ := storeNamed(c.Store)
	key := s.Server
	if c.Disturbance == Restart {
		key = restarted + s.Server
	}
	return m.servers[key], m.servers[key] != nil || s.Server == ""
}

func (m *matrix) run(ctx context.Context) {
	var all sync.WaitGroup
	places := make(chan struct{}, m.Parallel)
	restarts := map[string][]Cell{} // by store
	var others []Cell
	for _, c := range m.Cells {
		_, had := m.server(c)
		switch why := c.Applies(); {
		case why != "":
			m.finished(&Result{Cell: c, NotApplicable: why})
		case !had:
		case c.Disturbance == Restart:
			restarts[c.Store] = append(restarts[c.Store], c)
		default:
			others = append(others, c)
		}
	}
	byServer := map[string][]string{}
	for _, s := range Stores() {
		if len(restarts[s.Name]) > 0 {
			byServer[s.Server] = append(byServer[s.Server], s.Name)
		}
	}
	for name, stores := range byServer {
		// They take the longest, so they come first; those that wait together are as much
		// work as a few others.
		n := min(3, m.Parallel/4)
		if !m.take(ctx, places, n) {
			break
		}
		all.Go(func() {
			defer m.give(places, n)
			for _, store := range stores {
				m.together(ctx, m.servers[restarted+name], restarts[store])
			}
		})
	}
	for _, c := range others {
		all.Go(func() { m.inPlace(ctx, places, c, nil) })
	}
	for _, w := range m.Wrong {
		if _, had := m.server(w.Cell); had {
			all.Go(func() { m.inPlace(ctx, places, w.Cell, &w) })
		}
	}
	all.Wait()
}

func (m *matrix) inPlace(ctx context.Context, places chan struct{}, c Cell, w *WrongCell) {
	if !m.take(ctx, places, 1) {
		return
	}
	defer m.give(places, 1)
	s, _ := m.server(c)
	m.one(ctx, s, c, w)
}

// take takes n places at once, or none if ctx ends.
func (m *matrix) take(ctx context.Context, places chan struct{}, n int) bool {
	m.taking.Lock()
	defer m.taking.Unlock()
	for i := range n {
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			m.give(places, i)
			return false
		}
	}
	return true
}

func (m *matrix) give(places chan struct{}, n int) {
	for range n {
		<-places
	}
}

// together runs cells side by side that share the server's restarts.
func (m *matrix) together(ctx context.Context, s *server, cells []Cell) {
	if ctx.Err() != nil {
		return
	}
	s.join(len(cells))
	var all sync.WaitGroup
	for _, c := range cells {
		all.Go(func() { m.one(ctx, s, c, nil) })
	}
	all.Wait()
}

func (m *matrix) one(ctx context.Context, s *server, c Cell, w *WrongCell) {
	m.mu.Lock()
	name := fmt.Sprintf("c%03d", len(m.names))
	m.names[c] = name
	m.mu.Unlock()
	r := runCell(ctx, c, name, s)
	if w == nil {
		m.finished(r)
		return
	}
	m.mu.Lock()
	m.report.Wrong = append(m.report.Wrong, &WrongResult{r, w.Shows})
	m.mu.Unlock()
	if m.Finished != nil {
		m.Finished(r, w)
	}
}

func (m *matrix) finished(r *Result) {
	m.mu.Lock()
	m.report.Results = append(m.report.Results, r)
	m.mu.Unlock()
	if m.Finished != nil {
		m.Finished(r, nil)
	}
}
