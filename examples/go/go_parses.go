package main

import (
	"errors"
	"fmt"
	"go/format"
	"go/parser"
	"go/scanner"
	"go/token"
	"math"
	"strings"

	pb "example.com/reward-server/rewardpb"
)

// Of a file that does not parse, the lines before its first error earn up to this much.
const mostForABrokenFile = 0.5

var goParses = Reward{
	Info: &pb.Reward{
		Name: "go_parses",
		Description: "Whether the last Go block of the completion parses: 0.5 times the share of lines before " +
			"the first syntax error, or, without one, 1 less format_weight unless it is formatted as by gofmt.",
		Scope:         pb.Reward_SCOPE_COMPLETION,
		MinValue:      pointer(0.0),
		MaxValue:      pointer(1.0),
		Deterministic: true,
		ConfigSchemaJson: `{"type": "object", "additionalProperties": false, "properties": {"format_weight": {` +
			`"type": "number", "minimum": 0, "maximum": 0.5, "default": 0.2, ` +
			`"description": "What only formatted code earns."}}}`,
	},
	Configure: func(data []byte) (Scorer, []fieldError) {
		formatWeight := 0.2
		wrong := decodeConfig(data, map[string]any{"format_weight": &formatWeight})
		if formatWeight < 0 || formatWeight > 0.5 {
			wrong = append(wrong, fieldError{"format_weight", fmt.Sprintf("%g is not within 0 and 0.5", formatWeight)})
		}
		if len(wrong) > 0 {
			return nil, wrong
		}
		return func(_ *pb.PromptGroup, completion *pb.Completion) *pb.Result {
			code, found := lastFenced(completion.GetPrefill()+completion.GetText(), "go")
			if !found {
				return scored(0, "no block that begins with ```go")
			}
			return gradeGo(code, formatWeight)
		}, nil
	},
}

func gradeGo(code string, formatWeight float64) *pb.Result {
	_, err := parser.ParseFile(token.NewFileSet(), "", code, parser.SkipObjectResolution)
	var problems scanner.ErrorList
	if errors.As(err, &problems) && len(problems) > 0 {
		first := problems[0]
		lines := strings.Count(strings.TrimRight(code, "\n"), "\n") + 1
		good := math.Min(float64(first.Pos.Line-1)/float64(lines), 1)
		return scored(mostForABrokenFile*good, fmt.Sprintf("line %d: %s", first.Pos.Line, shown(first.Msg)))
	}
	if err != nil {
		return failed(pb.Failure_CODE_INTERNAL, "go/parser: %v", err)
	}
	formatted, err := format.Source([]byte(code))
	if err != nil {
		return failed(pb.Failure_CODE_INTERNAL, "go/format: %v", err)
	}
	if string(formatted) != code {
		return scored(1-formatWeight, "not formatted as by gofmt")
	}
	return scored(1, "")
}

// lastFenced gives the code of the last block that begins with ``` and the language. A block that was cut off
// ends with the text.
func lastFenced(text, language string) (string, bool) {
	var (
		code   strings.Builder
		inside bool
		found  bool
	)
	for _, line := range strings.SplitAfter(text, "\n") {
		fence := strings.TrimSpace(line)
		switch {
		case inside && fence == "```":
			inside = false
		case inside:
			code.WriteString(line)
		case strings.EqualFold(fence, "```"+language):
			code.Reset()
			inside, found = true, true
		}
	}
	return code.String(), found
}
