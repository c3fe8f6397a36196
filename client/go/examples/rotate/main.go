// Rotates a query by the RoPE of a model, on a posenc-server: rotate ADDRESS CONFIG_JSON
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"posenc.dev/posenc"
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
	client, err := posenc.Connect(os.Args[1], posenc.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	q := make([]float32, 3*32*128) // one sequence, three tokens, 32 heads of 128 elements
	for i := range q {
		q[i] = 1
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	model := &posencv1.RotarySource_Model{Model: &posencv1.ModelConfig{ConfigJson: config}}
	answer, err := client.ApplyRotary(ctx, &posencv1.ApplyRotaryRequest{
		Rotary:    &posencv1.RotarySource{Source: model},
		Positions: &posencv1.Positions{Source: &posencv1.Positions_Offset{Offset: 100_000}},
		Layout:    posencv1.Layout_LAYOUT_BSHD,
		Q:         &posencv1.RotaryOperand{Tensor: posenc.Tensor(q, 1, 3, 32, 128)},
	})
	var refused *posenc.Error
	if errors.As(err, &refused) && refused.Field != "" {
		log.Fatalf("field %s is %s: %s", refused.Field, refused.Value, refused.Limit)
	} else if err != nil {
		log.Fatal(err)
	}
	rotated, err := posenc.Values[float32](answer.Q)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(rotated[:4])
}
