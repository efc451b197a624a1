package main

import (
	"context"
	"flag"
	"io"
	"log/slog"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

type riverJob struct {
	Number int    `json:"number"`
	Body   string `json:"body"`
}

func (riverJob) Kind() string { return "bench" }

type riverWorker struct {
	river.WorkerDefaults[riverJob]
	run  *jobRun
	post *poster
}

func (worker *riverWorker) Work(ctx context.Context, job *river.Job[riverJob]) error {
	if worker.post != nil {
		if err := worker.post.send(ctx, job.Args.Number); err != nil {
			return err
		}
	}
	worker.run.work(job.Args.Number)
	return nil
}

// runRiver has River's jobs in PostgreSQL; with -post each is a webhook. All is as it comes but for the time between two
// fetches: River's own benchmark has 2 ms, which costs statements and saves waiting.
func runRiver(arguments []string) error {
	flags := flag.NewFlagSet("river", flag.ContinueOnError)
	url := flags.String("store", "", "of PostgreSQL")
	post := flags.String("post", "", "a webhook that each job is posted to")
	workers := flags.Int("workers", 500, "jobs at the same time")
	cooldown := flags.Duration("cooldown", river.FetchCooldownDefault, "between two fetches")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	ctx := context.Background()
	settings, err := pgxpool.ParseConfig(*url)
	if err != nil {
		return err
	}
	settings.MaxConns = 40
	pool, err := pgxpool.NewWithConfig(ctx, settings)
	if err != nil {
		return err
	}
	defer pool.Close()
	driver := riverpgxv5.New(pool)
	if role() != enqueueRole {
		migrator, err := rivermigrate.New(driver, nil)
		if err != nil {
			return err
		}
		if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
			return err
		}
	}
	run, registry := newJobRun(), river.NewWorkers()
	river.AddWorker(registry, &riverWorker{run: run, post: newPoster(*post, *workers)})
	config := &river.Config{
		FetchCooldown: *cooldown,
		Logger:        slog.New(slog.NewTextHandler(io.Discard, nil)),
		Workers:       registry,
	}
	if role() != enqueueRole {
		config.Queues = map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: *workers}}
	}
	client, err := river.NewClient(driver, config)
	if err != nil {
		return err
	}
	if role() != enqueueRole {
		if err := client.Start(ctx); err != nil {
			return err
		}
		defer func() { _ = client.StopAndCancel(ctx) }()
	}
	return serveRequests(func(given request) (any, error) {
		return run.drive(ctx, given, func(ctx context.Context, number int, body string) error {
			_, err := client.Insert(ctx, riverJob{number, body}, nil)
			return err
		}, func(ctx context.Context) (left int, err error) {
			err = pool.QueryRow(ctx, "SELECT count(*) FROM river_job WHERE state <> 'completed'").Scan(&left)
			return left, err
		})
	})
}
