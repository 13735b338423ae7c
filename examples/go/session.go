package main

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "example.com/reward-server/rewardpb"
)

// session is what one stream has opened.
type session struct {
	service  *RewardService
	stream   pb.RewardService_ScoreServer
	ctx      context.Context
	selected *selection
	scoring  sync.WaitGroup

	sending sync.Mutex // a stream takes one Send at a time

	mutex    sync.Mutex
	isOpen   bool
	batches  map[string]openBatch
	inFlight int // completions
}

type openBatch struct {
	*pb.Batch
	cancel context.CancelFunc
}

// receive reads frames until the client half-closes.
func (s *session) receive() error {
	for {
		request, err := s.stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		switch frame := request.GetFrame().(type) {
		case *pb.ScoreRequest_Open:
			err = s.open(frame.Open)
		case *pb.ScoreRequest_Batch:
			err = s.accept(frame.Batch)
		case *pb.ScoreRequest_Cancel:
			s.cancel(frame.Cancel.GetBatchId())
		}
		if err != nil {
			return err
		}
	}
}

// finish tells the client that the server drains, and waits until what was accepted is answered.
func (s *session) finish() {
	s.mutex.Lock() // from here on, no batch is admitted
	isOpen := s.isOpen
	s.mutex.Unlock()
	if isOpen {
		s.send(&pb.ScoreResponse{Frame: &pb.ScoreResponse_Draining{
			Draining: &pb.Draining{Grace: durationpb.New(grace)},
		}})
	}
	s.scoring.Wait()
}

func (s *session) open(open *pb.SessionOpen) error {
	if s.selected != nil {
		return invalid(violation("open", "came twice; it is the first frame of a stream"))
	}
	if version := open.GetProtocolVersion(); version != protocolVersion {
		return status.Errorf(codes.FailedPrecondition,
			"protocol_version %d is not spoken here; this server speaks %d", version, protocolVersion)
	}
	selected, wrong := s.service.selectRewards(open.GetRewards())
	if open.GetSessionId() == "" {
		wrong = append(wrong, violation("session_id", "is empty"))
	}
	if len(wrong) > 0 {
		return invalid(wrong...)
	}
	s.selected = selected
	err := s.send(&pb.ScoreResponse{Frame: &pb.ScoreResponse_Opened{
		Opened: &pb.SessionOpened{MaxInFlightCompletions: window},
	}})
	s.mutex.Lock()
	s.isOpen = true
	s.mutex.Unlock()
	return err
}

// accept begins to score a batch, or refuses it.
func (s *session) accept(batch *pb.Batch) error {
	if s.selected == nil {
		return invalid(violation("open", "is missing; it is the first frame of a stream"))
	}
	keys, problem := s.selected.keysOf(batch)
	timeout := defaultTimeout
	if batch.GetTimeout() != nil {
		timeout = batch.GetTimeout().AsDuration()
	}
	ctx, cancel := context.WithTimeout(s.ctx, timeout)
	isNew, refusal := s.admit(batch, problem, cancel)
	if !isNew {
		cancel()
		return nil // its results are on their way
	}
	if refusal != nil {
		cancel()
		return s.send(&pb.ScoreResponse{Frame: &pb.ScoreResponse_Rejected{
			Rejected: &pb.BatchRejected{BatchId: batch.GetBatchId(), Failure: refusal},
		}})
	}
	go func() {
		defer s.scoring.Done()
		defer cancel()
		s.score(ctx, batch, keys)
	}()
	return nil
}

// admit notes a batch. It says whether the batch is not being scored already, and why it is refused.
func (s *session) admit(batch *pb.Batch, problem string, cancel context.CancelFunc) (isNew bool, refusal *pb.Failure) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if open, known := s.batches[batch.GetBatchId()]; known {
		if isSameWork(open.Batch, batch) {
			return false, nil
		}
		return true, failure(pb.Failure_CODE_CONFLICT, "batch %s is being scored, with other content", batch.GetBatchId())
	}
	if problem != "" {
		return true, failure(pb.Failure_CODE_INVALID, "reward_keys: %s", problem)
	}
	count := completionCount(batch)
	if count == 0 {
		return true, failure(pb.Failure_CODE_INVALID, "groups: there is no completion")
	}
	select {
	case <-s.service.draining:
		return true, retriable(pb.Failure_CODE_UNAVAILABLE, "the server is going away; send the batch again later")
	default:
	}
	if s.inFlight > 0 && s.inFlight+count > window {
		return true, retriable(pb.Failure_CODE_LIMIT_EXCEEDED, "%d completions on top of %d exceed the window of %d",
			count, s.inFlight, window)
	}
	s.scoring.Add(1)
	s.inFlight += count
	s.batches[batch.GetBatchId()] = openBatch{batch, cancel}
	return true, nil
}

func (s *session) cancel(batchID string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if open, known := s.batches[batchID]; known {
		open.cancel()
	}
}

// score sends a result for each completion and key, then done.
func (s *session) score(ctx context.Context, batch *pb.Batch, keys []string) {
	done := &pb.BatchDone{BatchId: batch.GetBatchId()}
	var bundle []*pb.Result
	finished, sent := 0, time.Now()
	flush := func() {
		s.mutex.Lock()
		s.inFlight -= finished // before the client can know it
		s.mutex.Unlock()
		s.send(&pb.ScoreResponse{Frame: &pb.ScoreResponse_Results{Results: &pb.Results{Results: bundle}}})
		bundle, finished, sent = nil, 0, time.Now()
	}
	for _, group := range batch.GetGroups() {
		for _, completion := range group.GetCompletions() {
			for _, key := range keys {
				result := s.service.outcome(ctx, s.selected.scorers[key], group, completion)
				switch result.Outcome.(type) {
				case *pb.Result_Score:
					done.ScoredCount++
				case *pb.Result_NotApplicable:
					done.NotApplicableCount++
				default:
					done.FailedCount++
				}
				result.BatchId, result.CompletionId, result.RewardKey = batch.GetBatchId(), completion.GetCompletionId(), key
				bundle = append(bundle, result)
			}
			finished++
			if len(bundle) >= bundleResults || time.Since(sent) >= bundleWait {
				flush()
			}
		}
	}
	if len(bundle) > 0 {
		flush()
	}
	s.mutex.Lock()
	delete(s.batches, batch.GetBatchId())
	s.mutex.Unlock()
	s.send(&pb.ScoreResponse{Frame: &pb.ScoreResponse_Done{Done: done}})
}

// send writes a frame. A stream that is broken is told by Recv, so that only open needs the error.
func (s *session) send(response *pb.ScoreResponse) error {
	s.sending.Lock()
	defer s.sending.Unlock()
	return s.stream.Send(response)
}

// isSameWork compares what may not change under the id of a batch.
func isSameWork(a, b *pb.Batch) bool {
	return proto.Equal(
		&pb.Batch{Groups: a.GetGroups(), RewardKeys: a.GetRewardKeys()},
		&pb.Batch{Groups: b.GetGroups(), RewardKeys: b.GetRewardKeys()},
	)
}

func retriable(code pb.Failure_Code, format string, arguments ...any) *pb.Failure {
	made := failure(code, format, arguments...)
	made.RetryDelay = durationpb.New(time.Second)
	return made
}

func completionCount(batch *pb.Batch) int {
	count := 0
	for _, group := range batch.GetGroups() {
		count += len(group.GetCompletions())
	}
	return count
}
