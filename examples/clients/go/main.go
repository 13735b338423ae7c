// Command train-and-watch creates a training job, and prints its metrics as they come.
//
//	train-and-watch [OPTIONS] JOB.json
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"

	pb "example.com/train-and-watch/gatewaypb"
)

var errNotCompleted = errors.New("the job was not completed")

func main() {
	stop, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	defer cancel()
	err := run(stop)
	switch {
	case err == nil:
	case errors.Is(err, errNotCompleted):
		os.Exit(1)
	default:
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(2)
	}
}

func run(ctx context.Context) error {
	var access Access
	flag.StringVar(&access.Address, "address", environment("PLAUDIT_ADDRESS", "127.0.0.1:7430"), "`HOST:PORT` of the gateway")
	tokenFile := flag.String("token-file", "", "`FILE` with the token; default: the token in PLAUDIT_TOKEN")
	flag.BoolVar(&access.TLS, "tls", false, "speak TLS")
	flag.StringVar(&access.CAFile, "ca-file", "", "`FILE` with the CAs (PEM) that sign the gateway's certificate; implies -tls")
	keys := flag.String("keys", "reward_mean,loss", "metrics to print")
	id := flag.String("job", "", "watch this `JOB`, and create none")
	after := flag.String("after", "", "with -job: `CURSOR` of the last event that was seen")
	flag.Parse()

	access.Token = os.Getenv("PLAUDIT_TOKEN")
	if *tokenFile != "" {
		text, err := os.ReadFile(*tokenFile)
		if err != nil {
			return err
		}
		access.Token = strings.TrimSpace(string(text))
	}
	gateway, err := Connect(access)
	if err != nil {
		return err
	}
	defer gateway.Close()

	if *id == "" {
		if flag.NArg() != 1 {
			return errors.New("name the file of a job, or -job of one that is there")
		}
		job, err := readJob(flag.Arg(0))
		if err != nil {
			return err
		}
		created, err := gateway.Create(ctx, job)
		if err != nil {
			return err
		}
		*id = created.GetId()
		fmt.Println("job", *id)
	}

	last := pb.TrainingJobStatus_TRAINING_JOB_STATUS_UNSPECIFIED
	err = gateway.Watch(ctx, *id, *after, func(event *pb.TrainingJobEvent) {
		switch happened := event.GetEvent().(type) {
		case *pb.TrainingJobEvent_StepMetrics:
			printStep(happened.StepMetrics, strings.Split(*keys, ","), event.GetCursor())
		case *pb.TrainingJobEvent_StatusChanged:
			last = happened.StatusChanged.GetStatus()
			printStatus(happened.StatusChanged, event.GetCursor())
		case *pb.TrainingJobEvent_Alert:
			fmt.Printf("alert %s: %s\n", happened.Alert.GetKind(), happened.Alert.GetMessage())
		}
	})
	if err != nil {
		return err
	}
	if last != pb.TrainingJobStatus_TRAINING_JOB_STATUS_COMPLETED {
		return errNotCompleted
	}
	return nil
}

func printStep(metrics *pb.StepMetrics, keys []string, cursor string) {
	var shown []string
	for _, key := range keys {
		if value, there := metrics.GetValues()[key]; there {
			shown = append(shown, fmt.Sprintf("%s %.4g", key, value))
		}
	}
	fmt.Printf("step %d/%d  %s  [%s]\n", metrics.GetStep(), metrics.GetTotalSteps(), strings.Join(shown, "  "), cursor)
}

func printStatus(changed *pb.StatusChanged, cursor string) {
	name := strings.ToLower(strings.TrimPrefix(changed.GetStatus().String(), "TRAINING_JOB_STATUS_"))
	why := changed.GetError().GetMessage()
	if why == "" {
		why = changed.GetDetail()
	}
	if why != "" {
		why = ": " + why
	}
	fmt.Printf("status %s%s  [%s]\n", name, why, cursor)
}

func environment(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return otherwise
}
