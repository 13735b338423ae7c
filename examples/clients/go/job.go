package main

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pb "example.com/train-and-watch/gatewaypb"
)

// jobFile is a job as JSON: the fields of POST /v1/training_jobs. What is JSON text in the contract stays as it
// is written: 50 does not become 50.0.
type jobFile struct {
	BaseModel       string          `json:"base_model"`
	DatasetID       string          `json:"dataset_id"`
	OutputName      string          `json:"output_name"`
	Method          string          `json:"method"`
	Hyperparameters json.RawMessage `json:"hyperparameters"`
	ResumeFrom      string          `json:"resume_from"`
	Preflight       string          `json:"preflight"`
	Rewards         []struct {
		Name           string          `json:"name"`
		Server         string          `json:"server"`
		Reward         string          `json:"reward"`
		Weight         *float64        `json:"weight"`
		Config         json.RawMessage `json:"config"`
		TimeoutSeconds *float64        `json:"timeout_seconds"`
		MaxAttempts    *uint32         `json:"max_attempts"`
		RetrySeconds   *float64        `json:"retry_seconds"`
	} `json:"rewards"`
}

func readJob(path string) (*pb.TrainingJobSpec, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var file jobFile
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, fmt.Errorf("%s is no job: %w", path, err)
	}
	spec := &pb.TrainingJobSpec{
		BaseModel:           file.BaseModel,
		DatasetId:           file.DatasetID,
		OutputName:          file.OutputName,
		Method:              file.Method,
		HyperparametersJson: string(file.Hyperparameters),
		ResumeFrom:          file.ResumeFrom,
		Preflight:           file.Preflight,
	}
	for _, reward := range file.Rewards {
		spec.Rewards = append(spec.Rewards, &pb.RewardBinding{
			Name:        reward.Name,
			Server:      reward.Server,
			Reward:      reward.Reward,
			Weight:      reward.Weight,
			ConfigJson:  string(reward.Config),
			Timeout:     length(reward.TimeoutSeconds),
			MaxAttempts: reward.MaxAttempts,
			RetryTime:   length(reward.RetrySeconds),
		})
	}
	return spec, nil
}

// length is a length of time as it travels; nil is the default.
func length(seconds *float64) *durationpb.Duration {
	if seconds == nil {
		return nil
	}
	return durationpb.New(time.Duration(*seconds * float64(time.Second)))
}
