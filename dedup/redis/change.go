package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
	"github.com/redis/rueidis"
)

var errAnswer = errors.New("dedup/redis: the script's answer is none of its own")

// together is how many keys one script takes where it may take several: the start of a
// script costs more than a key, while many in one would hold up everybody else, and
// have this program wait for the server instead of reading the last answer meanwhile.
const together = 25

// What to do whose arguments are the results, or the doubts.
const (
	complete = "complete"
	release  = "release"
)

// change runs the script for all of rs in one round trip, and a second one on servers
// that don't know it yet. Answer is called for each that has an answer of the script.
func (s *Store) change(ctx context.Context, what string, rs []*dedup.Reservation, lease time.Duration, answer func(r *dedup.Reservation, code int64, value rueidis.RedisMessage) error) {
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	size := together
	if s.apart.Load() {
		size = 1
	}
	full := false
	for open := rs; len(open) > 0; {
		cmds := make(rueidis.Commands, 0, len(open)/size+1)
		for from := 0; from < len(open); from += size {
			cmds = append(cmds, s.command(full, what, open[from:min(from+size, len(open))], lease))
		}
		var again []*dedup.Reservation
		unknown, crossed := false, false
		for i, reply := range s.client.DoMulti(ctx, cmds...) {
			part := open[i*size : min((i+1)*size, len(open))]
			values, err := reply.ToArray()
			e, ok := rueidis.IsRedisErr(err)
			switch {
			case ok && e.IsNoScript() && !full:
				unknown = true
				again = append(again, part...)
			case ok && size > 1 && strings.HasPrefix(e.Error(), "CROSSSLOT"):
				crossed = true // a node of a cluster, by a client that doesn't know
				again = append(again, part...)
			default:
				take(part, values, err, answer)
			}
		}
		if full = full || unknown; crossed {
			s.apart.Store(true)
			size = 1
		}
		open = again
	}
}

// command is the script for rs; full has its text in it.
func (s *Store) command(full bool, what string, rs []*dedup.Reservation, lease time.Duration) rueidis.Completed {
	keys, args := make([]string, len(rs)), make([]string, 0, 3+2*len(rs))
	// Rounded up: what is in whole ms is no shorter than was asked for.
	args = append(args, what, s.keep, strconv.FormatInt(max((lease+time.Millisecond-1).Milliseconds(), 1), 10))
	for i, r := range rs {
		keys[i], args = s.key(r.Marker), append(args, string(r.Token[:]))
	}
	for _, r := range rs {
		switch {
		case what == complete:
			args = append(args, string(r.Result))
		case what == release && r.TakenOver:
			args = append(args, "1")
		case what == release:
			args = append(args, "0")
		}
	}
	if full {
		return s.client.B().Eval().Script(script).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()
	}
	return s.client.B().Evalsha().Sha1(scriptSHA).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()
}

// take gives each of rs its answer, or what went wrong with all of them.
func take(rs []*dedup.Reservation, values []rueidis.RedisMessage, err error, answer func(r *dedup.Reservation, code int64, value rueidis.RedisMessage) error) {
	if err == nil && len(values) != 2*len(rs) {
		err = errAnswer
	}
	for i, r := range rs {
		if err != nil {
			r.Err = sort(err)
			continue
		}
		code, wrong := values[2*i].AsInt64()
		switch {
		case wrong != nil:
			r.Err = fmt.Errorf("%w: %w", errAnswer, wrong)
		case code == troubled:
			said, wrong := values[2*i+1].ToString()
			if wrong != nil {
				said = wrong.Error()
			}
			r.Err = sortText(errors.New(said))
		default:
			r.Err = answer(r, code, values[2*i+1])
		}
	}
}

// sort says of a command's error what [dedup.LeaseDriver] says of them.
func sort(err error) error {
	if err == nil || errors.Is(err, errAnswer) {
		return err
	}
	if _, ok := rueidis.IsRedisErr(err); !ok {
		return fmt.Errorf("%w: redis: %w", dedup.ErrLost, err)
	}
	return sortText(err)
}

// sortText sorts an error that the server made. Its word is the first, or, of a script's
// call on servers before Redis 7, behind the line of the script.
func sortText(err error) error {
	for i, word := range strings.Fields(err.Error()) {
		switch strings.Trim(word, "-:") {
		case "OOM": // full, and it evicts nothing
			return fmt.Errorf("dedup/redis: %w: %w", broker.ErrBusy, err)
		case "LOADING", "CLUSTERDOWN", "MASTERDOWN", "READONLY", "TRYAGAIN", "MISCONF", "NOREPLICAS", "BUSY", "MOVED", "ASK", "UNBLOCKED", "UNKILLABLE":
			return fmt.Errorf("%w: redis: %w", dedup.ErrLost, err)
		case "NOAUTH", "WRONGPASS", "NOPERM":
			return fmt.Errorf("dedup/redis: %w: %w", broker.ErrUnauthorized, err)
		}
		if i > 2 {
			break
		}
	}
	return fmt.Errorf("dedup/redis: %w", err)
}
