package posenc

import (
	"context"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc/codes"

	posencv1 "posenc.dev/posenc/v1"
)

// RotateInChunks does what ApplyRotary does, for tensors of any size: it sends q and k in chunks of about chunkBytes
// (0: 4 MiB), which are whole head rows. If a stream ends early, because the server drains or limits its time, the
// chunks without an answer go into a new stream, as long as each stream answers at least one.
func (c *Client) RotateInChunks(ctx context.Context, request *posencv1.ApplyRotaryRequest,
	chunkBytes int) (*posencv1.ApplyRotaryResponse, error) {
	if chunkBytes <= 0 {
		chunkBytes = 4 << 20
	}
	t := &transfer{header: headerOf(request), answer: &posencv1.ApplyRotaryResponse{}}
	t.answer.Q = t.add(posencv1.Operand_OPERAND_QUERY, request.GetQ(), chunkBytes)
	t.answer.K = t.add(posencv1.Operand_OPERAND_KEY, request.GetK(), chunkBytes)
	for {
		before := len(t.pending)
		err := t.stream(ctx, c)
		if err == nil {
			return t.answer, nil
		}
		e, ok := err.(*Error)
		if !ok || len(t.pending) == before || !e.resumable() {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(max(e.Pushback, 100*time.Millisecond)):
		}
	}
}

// resumable reports whether a new stream can continue where this one ended: the server refused it for now, a proxy
// ended it (UNKNOWN), or the server's own time limit for one stream has passed.
func (e *Error) resumable() bool {
	return e.Pushback >= 0 && (e.Code == codes.Unavailable || e.Code == codes.Unknown ||
		e.Code == codes.DeadlineExceeded && e.Operand != "")
}

// chunk is a range of bytes of q or k.
type chunk struct {
	operand       posencv1.Operand
	offset        int64
	input, output []byte
}

type transfer struct {
	header  *posencv1.ApplyRotaryRequest
	pending []chunk // chunks without an answer
	answer  *posencv1.ApplyRotaryResponse
}

// headerOf copies a request without its tensors' bytes.
func headerOf(request *posencv1.ApplyRotaryRequest) *posencv1.ApplyRotaryRequest {
	operand := func(from *posencv1.RotaryOperand) *posencv1.RotaryOperand {
		if from == nil {
			return nil
		}
		return &posencv1.RotaryOperand{RotaryOffset: from.RotaryOffset, RotatesFirst: from.RotatesFirst,
			Tensor: &posencv1.Tensor{Dtype: from.GetTensor().GetDtype(), Shape: from.GetTensor().GetShape()}}
	}
	return &posencv1.ApplyRotaryRequest{Rotary: request.GetRotary(), Positions: request.GetPositions(),
		Layout: request.GetLayout(), Direction: request.GetDirection(), Precision: request.GetPrecision(),
		Hints: request.GetHints(), Q: operand(request.GetQ()), K: operand(request.GetK())}
}

// add cuts an operand into chunks and returns the tensor that their answers fill.
func (t *transfer) add(name posencv1.Operand, operand *posencv1.RotaryOperand, chunkBytes int) *posencv1.Tensor {
	if operand == nil {
		return nil
	}
	from := operand.GetTensor()
	row := int(elementSize(from.GetDtype()))
	if rank := len(from.GetShape()); rank > 0 {
		row *= int(from.Shape[rank-1])
	}
	size := max(chunkBytes/max(row, 1), 1) * max(row, 1)
	output := make([]byte, len(from.GetData()))
	for begin := 0; begin < len(output); begin += size {
		end := min(begin+size, len(output))
		t.pending = append(t.pending, chunk{name, int64(begin), from.Data[begin:end], output[begin:end]})
	}
	return &posencv1.Tensor{Dtype: from.GetDtype(), Shape: from.GetShape(), Data: output}
}

// stream sends the pending chunks in one stream and removes those that it answers.
func (t *transfer) stream(ctx context.Context, c *Client) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the sending goroutine
	stream, err := c.StreamApplyRotary(ctx)
	if err != nil {
		return err
	}
	unsent := append([]chunk(nil), t.pending...)
	go func() {
		// Recv returns the error that made Send fail.
		header := &posencv1.StreamApplyRotaryRequest_Header{Header: t.header}
		if stream.Send(&posencv1.StreamApplyRotaryRequest{Part: header}) != nil {
			return
		}
		for _, chunk := range unsent {
			rows := &posencv1.TensorChunk{ByteOffset: chunk.offset, Data: chunk.input}
			part := &posencv1.StreamApplyRotaryRequest_Chunk{
				Chunk: &posencv1.RotaryChunk{Operand: chunk.operand, Rows: rows},
			}
			if stream.Send(&posencv1.StreamApplyRotaryRequest{Part: part}) != nil {
				return
			}
		}
		stream.CloseSend()
	}()
	for {
		answer, err := stream.Recv()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		if answer.Info != nil {
			t.answer.Info = answer.Info
		}
		if answer.Chunk != nil {
			if err := t.take(answer.Chunk); err != nil {
				return err
			}
		}
	}
	if len(t.pending) > 0 {
		return fmt.Errorf("the server ended the stream before it answered %d chunks", len(t.pending))
	}
	return nil
}

// take copies an answer to its place.
func (t *transfer) take(answer *posencv1.RotaryChunk) error {
	for i, chunk := range t.pending {
		if chunk.operand == answer.Operand && chunk.offset == answer.GetRows().GetByteOffset() &&
			len(chunk.output) == len(answer.GetRows().GetData()) {
			copy(chunk.output, answer.Rows.Data)
			t.pending = append(t.pending[:i], t.pending[i+1:]...)
			return nil
		}
	}
	offset := answer.GetRows().GetByteOffset()
	return fmt.Errorf("the server answered %v at byte %d, which was not sent", answer.Operand, offset)
}
