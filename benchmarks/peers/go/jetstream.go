package main

import (
	"context"
	"encoding/json"
	"flag"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// runJetStream has jobs in a work queue of JetStream, on disk; with -post each is a webhook. A publication counts when
// the server has acknowledged it, a job is gone with the worker's acknowledgement.
func runJetStream(arguments []string) error {
	flags := flag.NewFlagSet("jetstream", flag.ContinueOnError)
	url := flags.String("store", "", "of nats-server")
	post := flags.String("post", "", "a webhook that each job is posted to")
	workers := flags.Int("workers", 500, "jobs at the same time")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	ctx := context.Background()
	connection, err := nats.Connect(*url)
	if err != nil {
		return err
	}
	defer connection.Close()
	js, err := jetstream.New(connection)
	if err != nil {
		return err
	}
	stream, err := js.CreateStream(ctx, jetstream.StreamConfig{
		Name: "jobs", Subjects: []string{"jobs"}, Retention: jetstream.WorkQueuePolicy, Storage: jetstream.FileStorage,
	})
	if err != nil {
		return err
	}
	consumer, err := stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
		Durable: "workers", AckPolicy: jetstream.AckExplicitPolicy, AckWait: 30 * time.Second, MaxAckPending: 5000,
	})
	if err != nil {
		return err
	}
	run, sender := newJobRun(), newPoster(*post, *workers)
	work := func(message jetstream.Msg) {
		var job riverJob
		if json.Unmarshal(message.Data(), &job) != nil {
			return
		}
		if sender != nil && sender.send(ctx, job.Number) != nil {
			_ = message.Nak()
			return
		}
		run.work(job.Number)
		_ = message.Ack()
	}
	waiting := make(chan jetstream.Msg, 5000)
	if sender != nil {
		for range *workers {
			go func() {
				for message := range waiting {
					work(message)
				}
			}()
		}
	}
	if role() != enqueueRole {
		consuming, err := consumer.Consume(func(message jetstream.Msg) {
			if sender != nil {
				waiting <- message
			} else {
				work(message)
			}
		})
		if err != nil {
			return err
		}
		defer consuming.Stop()
	}
	return serveRequests(func(given request) (any, error) {
		return run.drive(ctx, given, func(ctx context.Context, number int, body string) error {
			data, err := json.Marshal(riverJob{number, body})
			if err != nil {
				return err
			}
			_, err = js.Publish(ctx, "jobs", data)
			return err
		}, func(ctx context.Context) (int, error) {
			info, err := stream.Info(ctx)
			if err != nil {
				return 0, err
			}
			return int(info.State.Msgs), nil
		})
	})
}
