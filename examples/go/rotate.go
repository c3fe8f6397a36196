// Rotates a query by the RoPE of a model, on a posenc-server: rotate ADDRESS CONFIG_JSON
package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"log"
	"os"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	posencv1 "posenc.dev/posenc/v1"
)

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: rotate ADDRESS CONFIG_JSON")
	}
	config, err := os.ReadFile(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	// gRPC's default lets a client receive 4 MiB a message.
	channel, err := grpc.NewClient(os.Args[1], grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<30)))
	if err != nil {
		log.Fatal(err)
	}
	defer channel.Close()

	q := make([]float32, 3*32*128) // one sequence, three tokens, 32 heads of 128 elements
	for i := range q {
		q[i] = 1
	}
	var data bytes.Buffer
	if err := binary.Write(&data, binary.LittleEndian, q); err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	answer, err := posencv1.NewPositionalEncodingServiceClient(channel).ApplyRotary(ctx,
		&posencv1.ApplyRotaryRequest{
			Rotary:    &posencv1.RotarySource{Source: &posencv1.RotarySource_Model{Model: &posencv1.ModelConfig{ConfigJson: config}}},
			Positions: &posencv1.Positions{Source: &posencv1.Positions_Offset{Offset: 100_000}},
			Layout:    posencv1.Layout_LAYOUT_BSHD,
			Q: &posencv1.RotaryOperand{Tensor: &posencv1.Tensor{
				Dtype: posencv1.DataType_DATA_TYPE_FP32, Shape: []int64{1, 3, 32, 128}, Data: data.Bytes()}},
		})
	if err != nil {
		for _, detail := range status.Convert(err).Details() {
			if bad, ok := detail.(*errdetails.BadRequest); ok {
				log.Printf("field %s: %s", bad.FieldViolations[0].Field, bad.FieldViolations[0].Description)
			}
		}
		log.Fatal(err)
	}
	rotated := make([]float32, len(q))
	if err := binary.Read(bytes.NewReader(answer.Q.Data), binary.LittleEndian, rotated); err != nil {
		log.Fatal(err)
	}
	fmt.Println(rotated[:4])
}
