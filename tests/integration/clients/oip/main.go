// Calls a posenc-server by code that protoc generates from the protos of Triton's and of KServe's Python clients. Prints a
// line for each test; exits with 1 if one fails.
package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"oip/inference"
)

var shape = []int64{1, 3, 32, 128}

// query returns the tensor that clients/conftest.py rotates.
func query() []float32 {
	x := make([]float32, 3*32*128)
	for i := range x {
		x[i] = float32((37*i+11)%257-128) / 64
	}
	return x
}

func parameters() map[string]*inference.InferParameter {
	return map[string]*inference.InferParameter{
		"layout": {ParameterChoice: &inference.InferParameter_StringParam{StringParam: "BSHD"}},
		"offset": {ParameterChoice: &inference.InferParameter_Int64Param{Int64Param: 100_000}},
	}
}

func request() *inference.ModelInferRequest {
	var raw bytes.Buffer
	_ = binary.Write(&raw, binary.LittleEndian, query())
	return &inference.ModelInferRequest{
		ModelName: "llama", Id: "7", Parameters: parameters(),
		Inputs:           []*inference.ModelInferRequest_InferInputTensor{{Name: "q", Datatype: "FP32", Shape: shape}},
		RawInputContents: [][]byte{raw.Bytes()},
	}
}

func main() {
	connection, err := grpc.NewClient(os.Getenv("POSENC_TEST_ADDRESS"),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		panic(err)
	}
	expected, err := os.ReadFile(filepath.Join(os.Getenv("POSENC_TEST_DATA"), "rotated.fp32"))
	if err != nil {
		panic(err)
	}
	client := inference.NewGRPCInferenceServiceClient(connection)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	right := func(answer *inference.ModelInferResponse, err error) error {
		if err != nil {
			return err
		}
		if answer.Id != "7" || len(answer.RawOutputContents) != 1 || !bytes.Equal(answer.RawOutputContents[0], expected) {
			return fmt.Errorf("another answer: %v of %s", answer.Outputs, answer.Id)
		}
		return nil
	}
	tests := []struct {
		name string
		run  func() error
	}{
		{"health", func() error {
			answer, err := client.ServerReady(ctx, &inference.ServerReadyRequest{})
			if err == nil && !answer.Ready {
				err = fmt.Errorf("not ready")
			}
			return err
		}},
		{"metadata", func() error {
			answer, err := client.ModelMetadata(ctx, &inference.ModelMetadataRequest{Name: "llama"})
			if err == nil && (len(answer.Inputs) != 3 || answer.Inputs[0].Name != "q") {
				err = fmt.Errorf("another model: %v", answer)
			}
			return err
		}},
		{"raw bytes", func() error { return right(client.ModelInfer(ctx, request())) }},
		{"contents", func() error {
			asked := request()
			asked.RawInputContents = nil
			asked.Inputs[0].Contents = &inference.InferTensorContents{Fp32Contents: query()}
			return right(client.ModelInfer(ctx, asked))
		}},
		{"error", func() error {
			asked := request()
			asked.ModelName = "nothing"
			_, err := client.ModelInfer(ctx, asked)
			if status.Code(err) == codes.NotFound {
				return nil
			}
			return fmt.Errorf("not refused: %v", err)
		}},
	}
	failed := 0
	for _, test := range tests {
		if err := test.run(); err != nil {
			failed++
			fmt.Printf("fail %s\n%v\n", test.name, err)
		} else {
			fmt.Printf("pass %s\n", test.name)
		}
	}
	if failed > 0 {
		os.Exit(1)
	}
}
