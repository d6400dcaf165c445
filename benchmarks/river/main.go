// River as a yardstick: one job row a message, and workers that post each over HTTP.
//
//	river DATABASE_URL SINK_URL MESSAGES WORKERS
//
// It stores all jobs, says "ready", begins at a line on standard input and says "done" when the last job is completed.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"os"
	"strconv"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

const body = "Dear Ann, your statement is ready. your statement is ready. your statement is ready. " +
	"your statement is ready. your statement is ready. your statement is ready. your statement is ready. "

type Letter struct {
	Reference string `json:"reference"`
	Recipient string `json:"recipient"`
	Subject   string `json:"subject"`
	Body      string `json:"body"`
}

func (Letter) Kind() string { return "letter" }

type Sender struct {
	river.WorkerDefaults[Letter]
	url    string
	client *http.Client
}

func (s *Sender) Work(ctx context.Context, job *river.Job[Letter]) error {
	content, err := json.Marshal(job.Args)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, bytes.NewReader(content))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Idempotency-Key", job.Args.Reference)
	answer, err := s.client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if _, err = io.Copy(io.Discard, answer.Body); err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", answer.StatusCode)
	}
	return nil
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func number(text string) int {
	value, err := strconv.Atoi(text)
	must(err)
	return value
}

func main() {
	ctx := context.Background()
	messages, size := number(os.Args[3]), number(os.Args[4])
	pool, err := pgxpool.New(ctx, os.Args[1])
	must(err)
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	must(err)
	_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	must(err)

	sender := &Sender{
		url:    os.Args[2],
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: size}},
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, sender)
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		// By default it fetches ten times a second, and no more jobs than workers are free: 2,000 a second for 200.
		FetchCooldown: river.FetchCooldownMin,
		Logger:        slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
		Queues:        map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: size}},
		Workers:       workers,
	})
	must(err)

	letters := make([]river.InsertManyParams, messages)
	for n := range letters {
		letters[n] = river.InsertManyParams{Args: Letter{
			Reference: fmt.Sprintf("00000000-0000-4000-8000-%012d-0", n),
			Recipient: fmt.Sprintf("person%d@example.org", n),
			Subject:   "Your statement for March",
			Body:      body,
		}}
	}
	_, err = client.InsertManyFast(ctx, letters)
	must(err)

	completed, cancel := client.SubscribeConfig(&river.SubscribeConfig{
		ChanSize: messages, // events that find no place in it are dropped
		Kinds:    []river.EventKind{river.EventKindJobCompleted},
	})
	defer cancel()
	fmt.Println("ready")
	_, err = bufio.NewReader(os.Stdin).ReadString('\n')
	must(err)
	must(client.Start(ctx))
	for range messages {
		<-completed
	}
	must(client.Stop(ctx))
	fmt.Println("done")
}
