package main

import (
	"encoding/json"
	"fmt"
	"strings"

	pb "example.com/reward-server/rewardpb"
)

// Reward is one reward on offer.
type Reward struct {
	// Info describes it to clients.
	Info *pb.Reward
	// Configure checks a session's config and makes the scorer.
	Configure func(config []byte) (Scorer, []fieldError)
}

// Scorer scores one completion of a prompt. It makes its result with scored, notApplicable or failed.
type Scorer func(group *pb.PromptGroup, completion *pb.Completion) *pb.Result

func scored(value float64, explanation string) *pb.Result {
	return &pb.Result{Outcome: &pb.Result_Score{
		Score: &pb.Score{Value: value, Explanation: strings.ToValidUTF8(explanation, "\uFFFD")},
	}}
}

func notApplicable(reason string) *pb.Result {
	return &pb.Result{Outcome: &pb.Result_NotApplicable{NotApplicable: &pb.NotApplicable{Reason: reason}}}
}

func failed(code pb.Failure_Code, format string, arguments ...any) *pb.Result {
	return &pb.Result{Outcome: &pb.Result_Failure{Failure: failure(code, format, arguments...)}}
}

func failure(code pb.Failure_Code, format string, arguments ...any) *pb.Failure {
	return &pb.Failure{Code: code, Message: fmt.Sprintf(format, arguments...)}
}

// fieldError says what is wrong with a field of a config; the field "" is the config itself.
type fieldError struct{ field, message string }

// decodeConfig reads the fields of a config, by name, over the defaults that stand there, and returns all
// that is wrong.
func decodeConfig(data []byte, fields map[string]any) []fieldError {
	if len(data) == 0 {
		return nil
	}
	var given map[string]json.RawMessage
	if err := json.Unmarshal(data, &given); err != nil || given == nil {
		return []fieldError{{"", "is no JSON object"}}
	}
	var wrong []fieldError
	for name, value := range given {
		field, known := fields[name]
		switch {
		case !known:
			wrong = append(wrong, fieldError{name, "there is no such field"})
		case string(value) == "null": // which json.Unmarshal would pass over
			wrong = append(wrong, fieldError{name, "is null"})
		default:
			if err := json.Unmarshal(value, field); err != nil {
				wrong = append(wrong, fieldError{name, fmt.Sprintf("%s has the wrong type", shown(string(value)))})
			}
		}
	}
	return wrong
}

// shown quotes a text for people, shortened.
func shown(text string) string {
	const most = 80
	if runes := []rune(text); len(runes) > most {
		text = string(runes[:most]) + "…"
	}
	return fmt.Sprintf("%q", text)
}
