package localstack

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// Replication returns who holds a quorum queue or a stream of the virtual host "/";
// InSync counts the nodes on which its replicas run, whether or not they have caught
// up. It is an error that nobody leads it. The nodes are asked in their own language,
// which takes half a second.
func (r *RabbitMQServer) Replication(ctx context.Context, queue string) (Replication, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.usable(); err != nil {
		return Replication{}, err
	}
	said, err := r.backend.eval(ctx, fmt.Sprintf(rabbitReplication, erlangString(queue)))
	if err != nil {
		return Replication{}, fmt.Errorf("localstack: rabbitmq: replication of %s: %w", queue, err)
	}
	leader, online, _ := strings.Cut(said, " ")
	n, err := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(leader, rabbitNodePrefix), rabbitNodeHost))
	count, bad := strconv.Atoi(online)
	if err != nil || bad != nil || n < 0 || n >= r.backend.config.nodes {
		return Replication{}, fmt.Errorf("localstack: rabbitmq: %s is led by %q", queue, said)
	}
	return Replication{Leader: n, InSync: count}, nil
}

// rabbitReplication is what a node is asked. In rabbit_amqqueue:info, leader and
// online are items of both kinds of queue.
const rabbitReplication = `{ok, Q} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"/">>, queue, %s)), ` +
	`[{leader, L}, {online, O}] = rabbit_amqqueue:info(Q, [leader, online]), io_lib:format("~s ~b", [L, length(O)])`

// erlangString writes a string as a binary of Erlang.
func erlangString(s string) string {
	bytes := make([]string, len(s))
	for i := range len(s) {
		bytes[i] = strconv.Itoa(int(s[i]))
	}
	return "<<" + strings.Join(bytes, ",") + ">>"
}

// rabbitEval runs on a node beside the cluster, hidden from it. It asks the first
// node that answers to evaluate the expression, which is its argument, and writes
// the value, a text.
const rabbitEval = `
[Expr | Nodes] = init:get_plain_arguments(),
{ok, Tokens, _} = erl_scan:string(Expr ++ "."),
{ok, Parsed} = erl_parse:parse_exprs(Tokens),
Ask = fun(N, none) ->
              case rpc:call(list_to_atom(N), erl_eval, exprs, [Parsed, []], 5000) of
                  {value, V, _} -> {value, V};
                  {badrpc, _} = Why -> io:format(standard_error, "~s: ~p~n", [N, Why]), none
              end;
         (_, Had) -> Had
      end,
case lists:foldl(Ask, none, Nodes) of
    {value, V} -> io:format("~s~n", [V]);
    none -> ok
end,
halt().`

// eval evaluates an expression of Erlang, whose value is a text, on one of the nodes
// that run.
func (b *rabbitServer) eval(ctx context.Context, expression string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	erl, err := exec.LookPath("erl")
	if err != nil {
		return "", err
	}
	args := []string{"-noinput", "-hidden", "-boot", "no_dot_erlang", "-sname", rabbitNodePrefix + "asks" + rabbitNodeHost,
		"-kernel", "inet_dist_use_interface", "{127,0,0,1}", "-eval", rabbitEval, "-extra", expression}
	for n, p := range b.running() {
		if p.alive() {
			args = append(args, rabbitNode(n))
		}
	}
	cmd := exec.CommandContext(ctx, erl, args...)
	cmd.Dir = b.dir
	cmd.Env = append(cmd.Environ(), b.environment()...)
	var said, complained strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &complained
	err = cmd.Run()
	if answer := strings.TrimSpace(said.String()); err == nil && answer != "" {
		return answer, nil
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return "", fmt.Errorf("no node answers: %w: %s", err, strings.TrimSpace(complained.String()))
}
