package main

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "example.com/reward-server/rewardpb"
)

const (
	protocolVersion = 1
	// window is the most completions in flight in a session.
	window = 1024
	// defaultTimeout is the time budget of a batch that names none.
	defaultTimeout = 10 * time.Minute
	// What is ready is sent when there is this much of it, or when it has waited this long.
	bundleResults = 256
	bundleWait    = 20 * time.Millisecond
	// drainLinger is how long frames are still read that the client sent before it knew of the drain.
	drainLinger = 500 * time.Millisecond
)

// RewardService is the server's side of plaudit.reward.v1. A batch is scored in a goroutine of its own.
type RewardService struct {
	pb.UnimplementedRewardServiceServer
	rewards  map[string]Reward
	info     *pb.GetServerInfoResponse
	slots    chan struct{} // one for each completion that is scored at this moment
	draining chan struct{}
}

// NewRewardService offers rewards.
func NewRewardService(rewards ...Reward) *RewardService {
	service := &RewardService{
		rewards: make(map[string]Reward),
		info: &pb.GetServerInfoResponse{
			ServerName:         "go-rewards",
			ServerVersion:      "1.0.0",
			MinProtocolVersion: protocolVersion,
			MaxProtocolVersion: protocolVersion,
			Limits:             &pb.Limits{MaxFrameBytes: maxFrameBytes},
			Capabilities:       &pb.Capabilities{Cancellation: true},
		},
		slots:    make(chan struct{}, runtime.GOMAXPROCS(0)),
		draining: make(chan struct{}),
	}
	for _, reward := range rewards {
		service.rewards[reward.Info.Name] = reward
		service.info.Rewards = append(service.info.Rewards, reward.Info)
	}
	return service
}

// Drain tells every client to finish and to come back later.
func (s *RewardService) Drain() { close(s.draining) }

// GetServerInfo describes the server.
func (s *RewardService) GetServerInfo(context.Context, *pb.GetServerInfoRequest) (*pb.GetServerInfoResponse, error) {
	return s.info, nil
}

// Score is one session, from open to half-close.
func (s *RewardService) Score(stream pb.RewardService_ScoreServer) error {
	ctx, cancel := context.WithCancel(stream.Context())
	session := &session{service: s, stream: stream, ctx: ctx, batches: make(map[string]openBatch)}
	// No batch may use the stream after this method has returned.
	defer session.scoring.Wait()
	defer cancel()
	received := make(chan error, 1)
	go func() { received <- session.receive() }()
	select {
	case err := <-received:
		if err == nil { // the client has half-closed
			session.scoring.Wait()
		}
		return err
	case <-s.draining:
	}
	session.finish()
	select {
	case err := <-received:
		return err
	case <-time.After(drainLinger):
		return status.Error(codes.Unavailable, "the server is going away; come again later")
	}
}

// ScoreOnce scores one batch within the call's deadline. A batch without groups checks the rewards' configs.
func (s *RewardService) ScoreOnce(ctx context.Context, request *pb.ScoreOnceRequest) (*pb.ScoreOnceResponse, error) {
	selected, wrong := s.selectRewards(request.GetRewards())
	batch := request.GetBatch()
	keys, problem := selected.keysOf(batch)
	if problem != "" {
		wrong = append(wrong, violation("batch.reward_keys", problem))
	}
	if len(wrong) > 0 {
		return nil, invalid(wrong...)
	}
	response := &pb.ScoreOnceResponse{}
	for _, group := range batch.GetGroups() {
		for _, completion := range group.GetCompletions() {
			for _, key := range keys {
				result := s.outcome(ctx, selected.scorers[key], group, completion)
				result.BatchId, result.CompletionId, result.RewardKey = batch.GetBatchId(), completion.GetCompletionId(), key
				response.Results = append(response.Results, result)
			}
		}
	}
	return response, nil
}

// selection is the rewards that a client asked for, by key.
type selection struct {
	keys    []string
	scorers map[string]Scorer
}

// selectRewards makes the scorers of what a client selected, and says what is wrong with it.
func (s *RewardService) selectRewards(
	selections []*pb.RewardSelection,
) (*selection, []*errdetails.BadRequest_FieldViolation) {
	selected := &selection{scorers: make(map[string]Scorer)}
	var wrong []*errdetails.BadRequest_FieldViolation
	if len(selections) == 0 {
		wrong = append(wrong, violation("rewards", "is empty; select at least one"))
	}
	for i, chosen := range selections {
		key, field := chosen.GetKey(), fmt.Sprintf("rewards[%d]", i)
		if _, taken := selected.scorers[key]; taken || key == "" {
			wrong = append(wrong, violation(field+".key", fmt.Sprintf("%q is empty or taken", key)))
		}
		selected.keys = append(selected.keys, key)
		selected.scorers[key] = nil
		reward, known := s.rewards[chosen.GetName()]
		if !known {
			wrong = append(wrong, violation(field+".name", fmt.Sprintf("there is no reward %q", chosen.GetName())))
			continue
		}
		scorer, problems := reward.Configure([]byte(chosen.GetConfigJson()))
		for _, problem := range problems {
			path := strings.TrimSuffix(field+".config."+problem.field, ".")
			wrong = append(wrong, violation(path, problem.message))
		}
		selected.scorers[key] = scorer
	}
	return selected, wrong
}

// keysOf gives the keys that a batch wants, or what is wrong with them.
func (s *selection) keysOf(batch *pb.Batch) (keys []string, problem string) {
	if len(batch.GetRewardKeys()) == 0 {
		return s.keys, ""
	}
	for _, key := range batch.GetRewardKeys() {
		if _, known := s.scorers[key]; !known {
			return nil, fmt.Sprintf("%q was not selected", key)
		}
	}
	return batch.GetRewardKeys(), ""
}

// outcome scores one completion when a slot is free, unless the batch is over by then.
func (s *RewardService) outcome(
	ctx context.Context, score Scorer, group *pb.PromptGroup, completion *pb.Completion,
) (result *pb.Result) {
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-ctx.Done():
	}
	switch ctx.Err() {
	case context.DeadlineExceeded:
		return failed(pb.Failure_CODE_TIMEOUT, "the time ran out")
	case context.Canceled:
		return failed(pb.Failure_CODE_CANCELLED, "the client cancelled")
	}
	defer func() {
		if problem := recover(); problem != nil {
			result = failed(pb.Failure_CODE_INTERNAL, "the reward panicked: %v", problem)
		}
	}()
	begun := time.Now()
	result = score(group, completion)
	result.ScoringDuration = durationpb.New(time.Since(begun))
	return result
}

func violation(field, description string) *errdetails.BadRequest_FieldViolation {
	return &errdetails.BadRequest_FieldViolation{Field: field, Description: description}
}

// invalid is INVALID_ARGUMENT that names every wrong field, for people and for programs.
func invalid(wrong ...*errdetails.BadRequest_FieldViolation) error {
	told := make([]string, len(wrong))
	for i, v := range wrong {
		told[i] = v.GetField() + ": " + v.GetDescription()
	}
	plain := status.New(codes.InvalidArgument, strings.Join(told, "; "))
	detailed, err := plain.WithDetails(&errdetails.BadRequest{FieldViolations: wrong})
	if err != nil {
		return plain.Err()
	}
	return detailed.Err()
}
