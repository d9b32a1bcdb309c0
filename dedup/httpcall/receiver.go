package httpcall

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
)

// Receiver answers requests that come in: it runs a handler once for each ID, and
// replays its answer to copies. What it says itself is
//
//	400  the request has no ID, or a bad one
//	409  a copy is being handled at this moment; with Retry-After
//	413  the body is too long
//	422  the ID came before with another method, URL or body
//	503  the store isn't there, or an attempt ended in a crash and nobody knows what
//	     it did; with Retry-After
//
// each as application/problem+json. Requests of safe methods pass.
//
// An answer of the handler that is 5xx, 401, 403, 407, 425 or 429 must mean that nothing
// stands of what it did: it isn't kept, and a copy runs the handler again, also one with
// another body. Any other is replayed to whoever comes with the ID and the same request,
// so authentication and the check of a webhook's signature belong in front of the
// Receiver. A handler that panics, or
// whose process ends, leaves that open: if [dedup.CallOptions].Idempotent is set a
// copy runs it again within that time, with the same [Key], else the request waits
// in [dedup.Calls.Open] for somebody to decide.
//
// The answer is kept before it is sent, so it is held in memory; from where it is
// longer than [dedup.CallOptions].MaxResult it is sent as it is written, and replayed
// without its body and with [DroppedHeader]. Handlers can't flush or hijack.
type Receiver struct {
	// Calls holds the records. Its Bound ends the context of the handler.
	Calls *dedup.Calls
	// ID finds a request's ID; an error refuses the request. Nil takes the field
	// [KeyHeader].
	ID func(r *http.Request, body []byte) (string, error)
	// Scope returns whose ID it is: an authenticated client, a sender. IDs of
	// different scopes don't meet, so that nobody reads another's answers by
	// guessing. Nil is for senders that trust each other.
	Scope func(r *http.Request) string
	// Optional lets requests pass that have no ID.
	Optional bool
	// MaxBody bounds the bodies of requests, in bytes. Zero means 1 MiB.
	MaxBody int64
}

// maxID is how long an ID may be.
const maxID = 255

// FromHeader finds the ID in a header field: X-GitHub-Delivery, Webhook-Id. One that
// comes more than once, or is longer than 255 bytes, is an error.
func FromHeader(name string) func(*http.Request, []byte) (string, error) {
	return func(r *http.Request, _ []byte) (string, error) {
		values := r.Header.Values(name)
		switch {
		case len(values) > 1:
			return "", broker.Errorf(broker.ErrInvalid, nil, "%s comes %d times", name, len(values))
		case len(values) == 0:
			return "", nil
		case len(values[0]) > maxID:
			return "", broker.Errorf(broker.ErrInvalid, nil, "%s of %d bytes, over %d", name, len(values[0]), maxID)
		}
		return values[0], nil
	}
}

// Handler returns a handler that runs next once for each ID.
func (rc *Receiver) Handler(next http.Handler) http.Handler {
	find := rc.ID
	if find == nil {
		find = FromHeader(KeyHeader)
	}
	o := rc.Calls.Options()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if safe(r.Method) {
			next.ServeHTTP(w, r)
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, bound(rc.MaxBody)))
		if err != nil {
			status := http.StatusBadRequest
			if long := (*http.MaxBytesError)(nil); errors.As(err, &long) {
				status = http.StatusRequestEntityTooLarge
			}
			problem(w, status, "the body can't be read: "+err.Error())
			return
		}
		r = r.Clone(r.Context())
		r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
		id, err := find(r, body)
		switch {
		case err != nil:
			problem(w, http.StatusBadRequest, "bad ID: "+err.Error())
			return
		case id == "" && rc.Optional:
			next.ServeHTTP(w, r)
			return
		case id == "":
			problem(w, http.StatusBadRequest, "the request has no ID")
			return
		}
		if rc.Scope != nil {
			id = strconv.Quote(rc.Scope(r)) + " " + id
		}
		rec := &recorder{w: w, limit: o.MaxResult}
		outcome, kept, err := rc.Calls.Once(r.Context(), id, identity(r.Method, r.URL.RequestURI(), body), func(ctx context.Context, key string) ([]byte, error) {
			ctx = context.WithValue(context.WithValue(ctx, idKey, id), sentKey, key)
			next.ServeHTTP(rec, r.WithContext(ctx))
			rec.done = true
			a := rec.answer()
			if a.Status >= 500 || notLetIn(a.Status) {
				return nil, dedup.NotDone(fmt.Errorf("the handler answered %d", a.Status))
			}
			return a.encode(o.MaxResult), nil
		})
		var panicked *broker.PanicError
		switch {
		case errors.As(err, &panicked):
			panic(panicked.Value) // net/http tells of it
		case rec.done: // whatever became of its record, this is what the handler says
			rec.send()
		case outcome == dedup.Duplicate:
			replay(w, kept)
		case errors.Is(err, dedup.ErrOtherRequest):
			problem(w, http.StatusUnprocessableEntity, "the ID was used for another request")
		case outcome == dedup.InFlight:
			w.Header().Set("Retry-After", "1")
			problem(w, http.StatusConflict, "the request is being handled")
		case errors.Is(err, broker.ErrInvalid):
			problem(w, http.StatusBadRequest, "bad ID")
		default:
			w.Header().Set("Retry-After", "10")
			problem(w, http.StatusServiceUnavailable, "nobody can say now what became of the request")
		}
	})
}

// problem answers by an RFC 9457 problem.
func problem(w http.ResponseWriter, status int, detail string) {
	b, _ := json.Marshal(map[string]any{"title": http.StatusText(status), "status": status, "detail": detail})
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_, _ = w.Write(b)
}

// replay answers with what was kept.
func replay(w http.ResponseWriter, kept []byte) {
	a, err := decode(kept)
	if err != nil {
		problem(w, http.StatusInternalServerError, err.Error())
		return
	}
	w.Header().Set(ReplayedHeader, "true")
	if a.Dropped {
		w.Header().Set(DroppedHeader, "true")
	}
	a.write(w)
}

func (a *answer) write(w http.ResponseWriter) {
	for name, values := range a.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(a.Status)
	_, _ = w.Write(a.body) // who has gone asks again, and gets what was kept
}

// recorder is the handler's writer. It holds the answer as long as it isn't too long.
type recorder struct {
	w      http.ResponseWriter
	limit  int
	header http.Header
	status int
	sent   http.Header // what was written with the status
	body   []byte
	passed bool // the answer was too long, and is sent as it is written
	done   bool
}

// Header implements [http.ResponseWriter].
func (rec *recorder) Header() http.Header {
	if rec.header == nil {
		rec.header = http.Header{}
	}
	return rec.header
}

// WriteHeader implements [http.ResponseWriter]. Informational answers are left out.
func (rec *recorder) WriteHeader(status int) {
	if rec.status == 0 && status >= 200 {
		rec.status, rec.sent = status, rec.Header().Clone()
	}
}

// Write implements [http.ResponseWriter].
func (rec *recorder) Write(b []byte) (int, error) {
	rec.WriteHeader(http.StatusOK)
	if !rec.passed && len(rec.body)+len(b) > rec.limit {
		rec.passed = true
		rec.start()
		if _, err := rec.w.Write(rec.body); err != nil {
			return 0, err
		}
		rec.body = nil
	}
	if rec.passed {
		return rec.w.Write(b)
	}
	rec.body = append(rec.body, b...)
	return len(b), nil
}

// start sends status and header, with those fields too that aren't kept.
func (rec *recorder) start() {
	for name, values := range rec.sent {
		rec.w.Header()[name] = values
	}
	rec.w.WriteHeader(rec.status)
}

// answer is what is kept.
func (rec *recorder) answer() *answer {
	rec.WriteHeader(http.StatusOK)
	return &answer{Status: rec.status, Header: rec.sent, Dropped: rec.passed, body: rec.body}
}

// send sends the answer, if that wasn't done already.
func (rec *recorder) send() {
	if rec.passed {
		return
	}
	rec.start()
	_, _ = rec.w.Write(rec.body)
}
