package main

import (
	"errors"
	"fmt"
	"math/big"
	"regexp"
	"strconv"
	"strings"

	pb "example.com/reward-server/rewardpb"
)

var (
	tagPattern = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,62}$`)
	// No exponent: 1e999999999 would be a number of a billion digits.
	numberPattern = regexp.MustCompile(`^[+-]?[0-9]{1,100}(\.[0-9]{1,100})?$`)
	errNull       = errors.New("column answer is null")
)

var answerTag = Reward{
	Info: &pb.Reward{
		Name:            "answer_tag",
		Description:     "1 where the number in the last <answer> tag equals column answer, else 0.",
		Scope:           pb.Reward_SCOPE_COMPLETION,
		MinValue:        pointer(0.0),
		MaxValue:        pointer(1.0),
		Deterministic:   true,
		RequiredColumns: []string{"answer"},
		ConfigSchemaJson: `{"type": "object", "additionalProperties": false, "properties": {"tag": {` +
			`"type": "string", "pattern": "^[A-Za-z][A-Za-z0-9_-]{0,62}$", "default": "answer", ` +
			`"description": "Name of the tag."}}}`,
	},
	Configure: func(data []byte) (Scorer, []fieldError) {
		tag := "answer"
		wrong := decodeConfig(data, map[string]any{"tag": &tag})
		if !tagPattern.MatchString(tag) {
			wrong = append(wrong, fieldError{"tag", shown(tag) + " is no name of a tag"})
		}
		if len(wrong) > 0 {
			return nil, wrong
		}
		return func(group *pb.PromptGroup, completion *pb.Completion) *pb.Result {
			expected, err := expectedNumber(group.GetColumns()["answer"])
			if errors.Is(err, errNull) {
				return notApplicable(err.Error())
			}
			if err != nil {
				return failed(pb.Failure_CODE_INVALID, "%v", err)
			}
			text, found := lastTagged(completion.GetPrefill()+completion.GetText(), tag)
			if !found {
				return scored(0, fmt.Sprintf("no <%s> tag that is closed", tag))
			}
			answer, isNumber := parseNumber(text)
			switch {
			case !isNumber:
				return scored(0, shown(text)+" is no number")
			case answer.Cmp(expected) != 0:
				return scored(0, fmt.Sprintf("%s is not the answer", shown(text)))
			}
			return scored(1, "")
		}, nil
	},
}

// expectedNumber reads a column by its type, so that 72 and 72.0 are the same and 2^70 is itself.
func expectedNumber(column *pb.ColumnValue) (*big.Rat, error) {
	if column == nil {
		return nil, errors.New("column answer is missing")
	}
	switch kind := column.GetKind().(type) {
	case nil:
		return nil, errNull
	case *pb.ColumnValue_IntValue:
		return new(big.Rat).SetInt64(kind.IntValue), nil
	case *pb.ColumnValue_DoubleValue:
		// By its shortest decimal: 0.1 means a tenth.
		number, ok := new(big.Rat).SetString(strconv.FormatFloat(kind.DoubleValue, 'f', -1, 64))
		if ok {
			return number, nil
		}
	case *pb.ColumnValue_StringValue:
		if number, ok := parseNumber(kind.StringValue); ok {
			return number, nil
		}
	case *pb.ColumnValue_JsonValue:
		if number, ok := parseNumber(kind.JsonValue); ok {
			return number, nil
		}
	}
	return nil, fmt.Errorf("column answer holds %s, which is no number", shown(column.String()))
}

// lastTagged gives the text of the last tag that is closed.
func lastTagged(text, tag string) (string, bool) {
	end := strings.LastIndex(text, "</"+tag+">")
	if end < 0 {
		return "", false
	}
	opening := "<" + tag + ">"
	start := strings.LastIndex(text[:end], opening)
	if start < 0 {
		return "", false
	}
	return text[start+len(opening) : end], true
}

func parseNumber(text string) (*big.Rat, bool) {
	text = strings.TrimSpace(text)
	if !numberPattern.MatchString(text) {
		return nil, false
	}
	return new(big.Rat).SetString(text)
}

func pointer[T any](value T) *T { return &value }
