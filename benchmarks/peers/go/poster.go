package main

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// The secret is known to the sink, which checks the signatures (Standard Webhooks).
var webhookKey = []byte("0123456789abcdef0123456789abcdef")

// A poster sends the status of a message to a webhook, signed.
type poster struct {
	url    string
	client *http.Client
}

func newPoster(url string, atOnce int) *poster {
	if url == "" {
		return nil
	}
	transport := &http.Transport{MaxIdleConns: atOnce, MaxIdleConnsPerHost: atOnce, MaxConnsPerHost: atOnce}
	return &poster{url, &http.Client{Transport: transport, Timeout: 10 * time.Second}}
}

func (poster *poster) send(ctx context.Context, number int) error {
	body := fmt.Appendf(nil, `{"statuses":[{"id":"m%d","recipient_id":"15550110001","status":"sent",`+
		`"timestamp":"1700000000","type":"message","message":{"recipient_id":"15550110001"}}]}`, number)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, poster.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	id, now := "evt"+strconv.Itoa(number), strconv.FormatInt(time.Now().Unix(), 10)
	mac := hmac.New(sha256.New, webhookKey)
	fmt.Fprintf(mac, "%s.%s.", id, now)
	mac.Write(body)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("webhook-id", id)
	request.Header.Set("webhook-timestamp", now)
	request.Header.Set("webhook-signature", "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	answer, err := poster.client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("HTTP %d", answer.StatusCode)
	}
	return nil
}
