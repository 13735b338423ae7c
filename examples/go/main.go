// Command reward-server offers two rewards over plaudit.reward.v1: answer_tag and go_parses.
//
//	reward-server [HOST:PORT]
//
// The address may also stand in REWARD_ADDRESS. Port 0 takes a free one; the first line on stdout says which.
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	pb "example.com/reward-server/rewardpb"
)

const (
	defaultAddress = "127.0.0.1:50061"
	serviceName    = "plaudit.reward.v1.RewardService"
	maxFrameBytes  = 16 << 20
	// grace is how long accepted work is still served after SIGTERM.
	grace = 10 * time.Second
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("reward-server: ")
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	stop, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()

	listener, err := net.Listen("tcp", address())
	if err != nil {
		return err
	}
	server := grpc.NewServer(
		grpc.MaxRecvMsgSize(maxFrameBytes),
		// A trainer pings a quiet stream every 20 s. By default that is abuse, and ends the connection.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
			MinTime:             10 * time.Second,
			PermitWithoutStream: true,
		}),
	)
	service := NewRewardService(answerTag, goParses)
	pb.RegisterRewardServiceServer(server, service)
	healthy := health.NewServer()
	healthy.SetServingStatus(serviceName, healthpb.HealthCheckResponse_SERVING)
	healthpb.RegisterHealthServer(server, healthy)
	reflection.Register(server)

	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	fmt.Printf("listening on %s\n", listener.Addr())

	select {
	case err := <-failed:
		return err
	case <-stop.Done():
	}
	healthy.Shutdown()
	service.Drain()
	timer := time.AfterFunc(grace, server.Stop)
	defer timer.Stop()
	server.GracefulStop()
	return nil
}

func address() string {
	if len(os.Args) > 1 {
		return os.Args[1]
	}
	if given := os.Getenv("REWARD_ADDRESS"); given != "" {
		return given
	}
	return defaultAddress
}
