package main

import "github.com/spf13/cobra"

// newURLs is a help topic: a command that can't be run.
func newURLs() *cobra.Command {
	return &cobra.Command{
		Use:   "urls",
		Short: "How brokers are named by URL",
		Long: `--url and --target take these; the package comment of each adapter lists all parameters.
A URL may hold a password: the environment variable ` + urlEnv + ` keeps it out of the
list of processes. No error shows one.

  sqs://[HOST:PORT]/?region=…            Amazon SQS by the AWS default chain, or an endpoint
        profile=NAME, anonymous=true (for emulators), fifo=true (adds .fifo to names)
        topic and subscription: the queue's name; it ends in .fifo for a FIFO queue

  pubsub://[HOST:PORT]/PROJECT           Google Pub/Sub by application default credentials,
        or an emulator on the loopback
        exactly-once=true (for what --ensure creates)
        topic: its ID; subscription: its ID

  servicebus://[KEYNAME:KEY@]HOST        Azure Service Bus, by key or Azure's default chain
        sessions=true, duplicate-detection=false (for what --ensure creates)
        topic: queue or topic; subscription: QUEUE, TOPIC/SUBSCRIPTION, or either with
        /$deadletterqueue behind it

  rabbitmq://[USER:PASSWORD@]HOST[:PORT][,HOST…]/[VHOST]   also rabbitmq+tls://
        queue=quorum|classic|stream, stream-port=N
        topic: EXCHANGE, EXCHANGE/KEY or /QUEUE, or a stream; subscription: the queue's
        name, or STREAM/NAME

  nats://[USER:PASSWORD@|TOKEN@]HOST[:PORT][,HOST…]        also nats+tls://
        topic: a subject; subscription: STREAM/consumer

  kafka://[USER:PASSWORD@]HOST[:PORT][,HOST…]/?mode=group|share
        topic: a topic; subscription: topic/group`,
	}
}
