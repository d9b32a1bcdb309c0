package servicebus_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
	"github.com/onceline/onceline/localstack/servicebus"
)

// adminClient returns the vendor's administration client.
func adminClient(t testing.TB, connection string) *admin.Client {
	t.Helper()
	transport := servicebus.PlainTransport(nil)
	t.Cleanup(transport.CloseIdleConnections)
	c, err := admin.NewClientFromConnectionString(connection, &admin.ClientOptions{ClientOptions: azcore.ClientOptions{
		Transport: transport, Retry: policy.RetryOptions{MaxRetries: -1}}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func status(err error) int {
	var e *azcore.ResponseError
	if errors.As(err, &e) {
		return e.StatusCode
	}
	return 0
}

// TestAdminQueues creates, reads, lists, changes and deletes queues by the
// vendor's client.
func TestAdminQueues(t *testing.T) {
	ctx := t.Context()
	s, connection := start(t)
	a := adminClient(t, connection)
	created, err := a.CreateQueue(ctx, "dir/Orders", &admin.CreateQueueOptions{Properties: &admin.QueueProperties{
		LockDuration: to.Ptr("PT30S"), MaxDeliveryCount: to.Ptr(int32(3)), RequiresDuplicateDetection: to.Ptr(true),
		DuplicateDetectionHistoryTimeWindow: to.Ptr("PT20S"), RequiresSession: to.Ptr(true), UserMetadata: to.Ptr("<&>"),
	}})
	if err != nil {
		t.Fatal(err)
	}
	if *created.LockDuration != "PT30S" || *created.DuplicateDetectionHistoryTimeWindow != "PT20S" || !*created.RequiresSession {
		t.Errorf("created %+v", created)
	}
	if _, err := a.CreateQueue(ctx, "dir/orders", nil); status(err) != http.StatusConflict {
		t.Errorf("created twice: %v", err)
	}
	got := must(a.GetQueue(ctx, "dir/orders", nil))(t)
	if got == nil || *got.UserMetadata != "<&>" || *got.MaxDeliveryCount != 3 || *got.DefaultMessageTimeToLive != "P10675199DT2H48M5.4775807S" {
		t.Errorf("got %+v", got)
	}
	got.LockDuration = to.Ptr("PT1M")
	if _, err := a.UpdateQueue(ctx, "dir/Orders", got.QueueProperties, nil); err != nil {
		t.Fatal(err)
	}
	got.RequiresSession = to.Ptr(false)
	if _, err := a.UpdateQueue(ctx, "dir/Orders", got.QueueProperties, nil); status(err) != http.StatusBadRequest {
		t.Errorf("changed sessions: %v", err)
	}
	if _, err := a.CreateQueue(ctx, "short", &admin.CreateQueueOptions{Properties: &admin.QueueProperties{LockDuration: to.Ptr("PT6M")}}); status(err) != http.StatusBadRequest {
		t.Errorf("lock of six minutes: %v", err)
	}
	if missing := must(a.GetQueue(ctx, "missing", nil))(t); missing != nil {
		t.Errorf("missing: %+v", missing)
	}
	for _, n := range []string{"a", "b", "c"} {
		if _, err := a.CreateQueue(ctx, n, nil); err != nil {
			t.Fatal(err)
		}
	}
	var names []string
	for p := a.NewListQueuesPager(&admin.ListQueuesOptions{MaxPageSize: 2}); p.More(); {
		for _, q := range must(p.NextPage(ctx))(t).Queues {
			names = append(names, q.QueueName)
		}
	}
	if len(names) != 4 || names[0] != "a" || names[3] != "dir/Orders" {
		t.Errorf("listed %v", names)
	}
	if err := s.CreateQueue("A", servicebus.QueueProperties{}); !errors.Is(err, servicebus.ErrExists) {
		t.Errorf("created beside: %v", err)
	}
	runtime := must(a.GetQueueRuntimeProperties(ctx, "a", nil))(t)
	if runtime.ActiveMessageCount != 0 || time.Since(runtime.CreatedAt) > time.Minute {
		t.Errorf("runtime %+v", runtime)
	}
	if _, err := a.DeleteQueue(ctx, "a", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := a.DeleteQueue(ctx, "a", nil); status(err) != http.StatusNotFound {
		t.Errorf("deleted twice: %v", err)
	}
	if ns := must(a.GetNamespaceProperties(ctx, nil))(t); ns.SKU != "Standard" {
		t.Errorf("namespace %+v", ns)
	}
}

var _ = context.Background
var _ net.Conn
