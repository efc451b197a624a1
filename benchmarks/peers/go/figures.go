package main

import (
	"math"
	"slices"
	"time"
)

// A summary of times, in milliseconds; percentiles by nearest rank.
type summary struct {
	Count int     `json:"count"`
	Mean  float64 `json:"mean"`
	Min   float64 `json:"min"`
	P50   float64 `json:"p50"`
	P90   float64 `json:"p90"`
	P95   float64 `json:"p95"`
	P99   float64 `json:"p99"`
	Max   float64 `json:"max"`
}

// summarise gives nothing for no times.
func summarise(times []time.Duration) *summary {
	if len(times) == 0 {
		return nil
	}
	slices.Sort(times)
	var sum time.Duration
	for _, each := range times {
		sum += each
	}
	at := func(share float64) float64 {
		rank := max(0, int(math.Ceil(float64(len(times))*share))-1)
		return milliseconds(times[rank])
	}
	mean := milliseconds(sum / time.Duration(len(times)))
	return &summary{len(times), mean, at(0), at(0.50), at(0.90), at(0.95), at(0.99), at(1)}
}

func milliseconds(duration time.Duration) float64 { return float64(duration.Microseconds()) / 1000 }

// perSecond counts moments, which are times since the beginning, by their second.
func perSecond(moments []time.Duration) []int {
	var counts []int
	for _, moment := range moments {
		second := int(moment / time.Second)
		for len(counts) <= second {
			counts = append(counts, 0)
		}
		counts[second]++
	}
	return counts
}
