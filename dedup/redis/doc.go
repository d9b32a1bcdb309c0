// Package redis keeps the reservations of [dedup.Lease] in Redis, from version 5 on,
// or Valkey, alone or as a cluster:
//
//	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{"127.0.0.1:6379"}})
//	store, err := redis.New(ctx, client, redis.Options{})
//	lease := dedup.NewLease(store, "billing", dedup.LeaseOptions{})
//
// A key is one string in Redis, which holds who has reserved it and until when, or
// that it is done, and the effect's result. A change is made in a script, so it is
// atomic, and those of a hundred keys go in one round trip: 25 in a script, each for
// itself. The owner's token is compared in the script: a holder that was replaced changes
// nothing. Leases end by the server's clock.
//
// # As a cluster
//
// A client that knows a cluster (one without ForceSingleClient, by the address of any
// node) sends each key to the node that has its slot, which the part of the key in braces
// decides, in a script of its own. While a node is down the messages whose keys it has
// can't be reserved: they wait for it, or for the replica that takes its place, as on a
// single server, and the others go on. What a failover loses is below; each primary of a
// cluster fails over for itself. The tests run on three nodes without replicas, one of
// which is killed.
//
// # What it can lose
//
// Redis is no database that keeps what it has answered. After each of these a
// message that was done is applied again when a copy comes, and one that is being
// applied may be applied beside it:
//
//   - A failover: replication is asynchronous, so a primary that dies takes with it
//     what it hadn't sent yet (RED-F-01). WAIT makes that rarer and doesn't rule it
//     out (RED-F-02). In a cluster the same is true of a primary that is cut off: until
//     its cluster-node-timeout is over it goes on granting what its successor will not
//     know.
//   - A crash of the server: with appendfsync everysec the last second or so is gone
//     (RED-F-03), without the append-only file all since the last snapshot.
//   - Eviction, which takes records before their time (RED-F-04). [New] refuses a
//     server that evicts. One that doesn't and is full refuses the reservation, and
//     the effect doesn't run (RED-F-05).
//
// Use [dedup.Inbox] where the effect is in a database. Where it isn't, give the
// destination [dedup.Reservation].Fence or the message's ID, for a lock that can be lost
// needs one who checks (RED-F-06).
package redis
