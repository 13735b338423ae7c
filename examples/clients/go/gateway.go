package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "example.com/train-and-watch/gatewaypb"
)

const (
	callTimeout  = 30 * time.Second
	firstPause   = 200 * time.Millisecond
	longestPause = 5 * time.Second
	// patience is how long the gateway may be away before it is given up.
	patience = time.Minute
)

// Access says where the gateway is, and what it is shown.
type Access struct {
	Address string // HOST:PORT
	Token   string // sent with every call where it is not empty
	TLS     bool
	CAFile  string // PEM; the machine's own CAs where it is empty
}

// Gateway is a client of plaudit.gateway.v1.
type Gateway struct {
	connection *grpc.ClientConn
	jobs       pb.TrainingJobServiceClient
	token      string
}

// Connect prepares a client; the connection is made at the first call.
func Connect(access Access) (*Gateway, error) {
	transport := grpc.WithInsecure()
	switch {
	case access.CAFile != "":
		certificates, err := credentials.NewClientTLSFromFile(access.CAFile, "")
		if err != nil {
			return nil, err
		}
		transport = grpc.WithTransportCredentials(certificates)
	case access.TLS:
		transport = grpc.WithTransportCredentials(credentials.NewClientTLSFromCert(nil, ""))
	case access.Token != "" && !isLoopback(access.Address):
		return nil, fmt.Errorf("the token would travel to %s in plain text; use -tls", access.Address)
	}
	connection, err := grpc.Dial(access.Address, transport,
		// A connection that died without a word is noticed within 30 s.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 20 * time.Second, Timeout: 10 * time.Second}))
	if err != nil {
		return nil, err
	}
	return &Gateway{connection, pb.NewTrainingJobServiceClient(connection), access.Token}, nil
}

// Close ends the connection.
func (g *Gateway) Close() { _ = g.connection.Close() }

// Create queues a job. A call whose answer is lost is made again under the same request id: it never makes two.
func (g *Gateway) Create(ctx context.Context, spec *pb.TrainingJobSpec) (*pb.TrainingJob, error) {
	request := &pb.CreateTrainingJobRequest{Spec: spec, RequestId: newUUID()}
	var job *pb.TrainingJob
	waiting := waiting{pause: firstPause}
	for {
		call, cancel := context.WithTimeout(g.authorized(ctx), callTimeout)
		var err error
		job, err = g.jobs.CreateTrainingJob(call, request)
		cancel()
		if err == nil {
			return job, nil
		}
		if err := waiting.afterBreak(ctx, err); err != nil {
			return nil, err
		}
	}
}

// Watch calls handle for each event of a job, once and in order, to the job's end. A stream that breaks is opened
// again after the last event that was handled; after goes on where another process left off.
func (g *Gateway) Watch(ctx context.Context, id, after string, handle func(*pb.TrainingJobEvent)) error {
	cursor := after
	pauses := waiting{pause: firstPause}
	for {
		err := g.watchOnce(ctx, id, cursor, func(event *pb.TrainingJobEvent) {
			handle(event)
			cursor = event.GetCursor()
			pauses = waiting{pause: firstPause}
		})
		if err == nil {
			return nil
		}
		if err := pauses.afterBreak(ctx, err); err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "the stream broke (%v); going on after %s\n", err, cursor)
	}
}

func (g *Gateway) watchOnce(ctx context.Context, id, after string, handle func(*pb.TrainingJobEvent)) error {
	ctx, cancel := context.WithCancel(g.authorized(ctx))
	defer cancel()
	stream, err := g.jobs.WatchTrainingJob(ctx, &pb.WatchTrainingJobRequest{Id: id, AfterCursor: after})
	for err == nil {
		var event *pb.TrainingJobEvent
		if event, err = stream.Recv(); err == nil {
			handle(event)
		}
	}
	if errors.Is(err, io.EOF) {
		return nil // after the last status of the job
	}
	return err
}

func (g *Gateway) authorized(ctx context.Context) context.Context {
	if g.token == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+g.token)
}

// waiting makes growing pauses, until the gateway has been away for too long.
type waiting struct {
	pause       time.Duration
	brokenSince time.Time
}

// afterBreak waits after an error that is a lost connection. It returns any other, and that one after a while.
func (w *waiting) afterBreak(ctx context.Context, err error) error {
	if w.brokenSince.IsZero() {
		w.brokenSince = time.Now()
	}
	if status.Code(err) != codes.Unavailable || time.Since(w.brokenSince) > patience {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(w.pause):
	}
	if w.pause *= 2; w.pause > longestPause {
		w.pause = longestPause
	}
	return nil
}

func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// newUUID is a random one, of version 4.
func newUUID() string {
	var id [16]byte
	if _, err := rand.Read(id[:]); err != nil {
		panic(err)
	}
	id[6] = id[6]&0x0f | 0x40
	id[8] = id[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
}
