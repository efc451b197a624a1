package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const jobBytes = 200

// A jobRun is one run of a job queue: clients that enqueue one job after the other, each durable before the next, and
// workers that note what they were given.
type jobRun struct {
	mutex    sync.Mutex
	began    map[int]time.Time
	waits    []time.Duration
	started  time.Time
	moments  []time.Duration
	repeated int
	unknown  int
	lastDone time.Time
	next     atomic.Int64
}

type jobFigures struct {
	Jobs     int      `json:"jobs"`
	Worked   int      `json:"worked"`
	Repeated int      `json:"repeated"`
	Unknown  int      `json:"unknown"`
	Left     int      `json:"left"`
	Seconds  float64  `json:"seconds"`
	Each     []int    `json:"per_second"`
	Enqueue  *summary `json:"enqueue_ms"`
	Work     *summary `json:"work_ms"`
}

func newJobRun() *jobRun { return &jobRun{began: map[int]time.Time{}} }

// work notes that a worker was given a job.
func (run *jobRun) work(number int) {
	now := time.Now()
	run.mutex.Lock()
	defer run.mutex.Unlock()
	began, known := run.began[number]
	switch {
	case !known:
		run.unknown++
	case began.IsZero():
		run.repeated++
	default:
		run.waits = append(run.waits, now.Sub(began))
		run.began[number] = time.Time{}
		run.lastDone = now
		run.moments = append(run.moments, now.Sub(run.started))
	}
}

// drive enqueues for so many seconds, waits until all has been worked, and until the store holds nothing of it.
func (run *jobRun) drive(
	ctx context.Context, given order, enqueue func(context.Context, int, string) error, left func(context.Context) (int, error),
) (*jobFigures, error) {
	body := strings.Repeat("x", jobBytes)
	started := time.Now()
	run.mutex.Lock()
	run.started = started
	run.mutex.Unlock()
	until := started.Add(time.Duration(given.Seconds * float64(time.Second)))
	took := make([][]time.Duration, given.Clients)
	failures := make(chan error, given.Clients)
	var clients sync.WaitGroup
	for client := range given.Clients {
		clients.Add(1)
		go func() {
			defer clients.Done()
			for time.Now().Before(until) {
				number, began := int(run.next.Add(1)), time.Now()
				run.mutex.Lock()
				run.began[number] = began
				run.mutex.Unlock()
				if err := enqueue(ctx, number, body); err != nil {
					failures <- err
					return
				}
				took[client] = append(took[client], time.Since(began))
			}
		}()
	}
	clients.Wait()
	select {
	case err := <-failures:
		return nil, err
	default:
	}
	var all []time.Duration
	for _, times := range took {
		all = append(all, times...)
	}
	deadline := time.Now().Add(60 * time.Second)
	for run.worked() < len(all) {
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("of %d jobs %d were worked", len(all), run.worked())
		}
		time.Sleep(2 * time.Millisecond)
	}
	remaining := 1
	for remaining > 0 && time.Now().Before(deadline) {
		var err error
		if remaining, err = left(ctx); err != nil {
			return nil, err
		}
		time.Sleep(10 * time.Millisecond)
	}
	run.mutex.Lock()
	defer run.mutex.Unlock()
	figures := &jobFigures{
		len(all), len(run.waits), run.repeated, run.unknown, remaining, run.lastDone.Sub(started).Seconds(),
		perSecond(run.moments), summarise(all), summarise(run.waits),
	}
	run.waits, run.moments, run.repeated, run.unknown = nil, nil, 0, 0
	clear(run.began)
	return figures, nil
}

func (run *jobRun) worked() int {
	run.mutex.Lock()
	defer run.mutex.Unlock()
	return len(run.waits)
}
