package posenc

// These tests need the servers and the data that tests/integration/clients/conftest.py describes.

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	posencv1 "posenc.dev/posenc/v1"
)

const (
	fp32 = posencv1.DataType_DATA_TYPE_FP32
	bf16 = posencv1.DataType_DATA_TYPE_BF16
)

func setting(t *testing.T, name string) string {
	value := os.Getenv("POSENC_TEST_" + name)
	if value == "" {
		t.Skip("POSENC_TEST_" + name + " is not set")
	}
	return value
}

func connect(t *testing.T, name string, options Options) *Client {
	client, err := Connect(setting(t, name), options)
	check(t, err)
	t.Cleanup(func() { client.Close() })
	return client
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func says(t *testing.T, err error, text string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("%v, must say %q", err, text)
	}
}

func read(t *testing.T, parts ...string) []byte {
	content, err := os.ReadFile(filepath.Join(append([]string{setting(t, "DATA")}, parts...)...))
	check(t, err)
	return content
}

func values(count int) []float32 {
	x := make([]float32, count)
	for i := range x {
		x[i] = float32((37*i+11)%257-128) / 64
	}
	return x
}

func narrowed(dtype posencv1.DataType, x []float32, shape ...int64) *posencv1.Tensor {
	if dtype == fp32 {
		return Tensor(x, shape...)
	}
	return Narrow(dtype, x, shape...)
}

func settings() *posencv1.RotarySource {
	return &posencv1.RotarySource{Source: &posencv1.RotarySource_Settings{Settings: &posencv1.RotarySettings{
		Frequencies:  &posencv1.RotarySettings_RopeParameters{RopeParameters: &posencv1.RopeParameters{RopeType: "default"}},
		RotaryDim:    proto.Int64(128),
		InputPairing: posencv1.Pairing_PAIRING_HALF_SPLIT,
	}}}
}

func rotation(dtype posencv1.DataType, tokens int64) *posencv1.ApplyRotaryRequest {
	return &posencv1.ApplyRotaryRequest{
		Rotary:    settings(),
		Positions: &posencv1.Positions{Source: &posencv1.Positions_Offset{Offset: 100_000}},
		Layout:    posencv1.Layout_LAYOUT_BSHD,
		Q:         &posencv1.RotaryOperand{Tensor: narrowed(dtype, values(int(tokens*32*128)), 1, tokens, 32, 128)},
	}
}

func model(config []byte) *posencv1.RotarySource {
	return &posencv1.RotarySource{Source: &posencv1.RotarySource_Model{Model: &posencv1.ModelConfig{ConfigJson: config}}}
}

func TestRotationByAConfigGivesTheBytesOfEveryOtherClient(t *testing.T) {
	client := connect(t, "ADDRESS", Options{})
	for name, dtype := range map[string]posencv1.DataType{"rotated.fp32": fp32, "rotated.bf16": bf16} {
		request := rotation(dtype, 3)
		request.Rotary = model(read(t, "config.json"))
		answer, err := client.ApplyRotary(context.Background(), request)
		check(t, err)
		if !bytes.Equal(answer.Q.Data, read(t, name)) {
			t.Errorf("%s: other bytes", name)
		}
	}
}

// Pair k of a half-split row is rotated by position * 10000^(-k/64). The sum of two float32 products has an error below
// 3 units of 2^-24 of |x0| + |x1| <= 4; bfloat16 adds half of its own unit.
func TestRotationIsNearTheFormula(t *testing.T) {
	client := connect(t, "ADDRESS", Options{})
	for dtype, bound := range map[posencv1.DataType]float64{fp32: 0x1p-20, bf16: 0x1p-7 + 0x1p-20} {
		answer, err := client.ApplyRotary(context.Background(), rotation(dtype, 3))
		check(t, err)
		rotated, err := Values[float32](answer.Q)
		check(t, err)
		x := values(len(rotated))
		for i, got := range rotated {
			row, k := i/128*128, i%128%64
			sin, cos := math.Sincos(float64(100_000+i/4096) * math.Pow(10000, -float64(k)/64))
			x0, x1 := float64(x[row+k]), float64(x[row+k+64])
			want := x0*cos - x1*sin
			if i%128 >= 64 {
				want = x1*cos + x0*sin
			}
			if math.Abs(float64(got)-want) > bound {
				t.Fatalf("%v: element %d is %v, must be %v", dtype, i, got, want)
			}
		}
	}
}

func TestRounding(t *testing.T) {
	records := read(t, "rounding")
	for ; len(records) > 0; records = records[8:] {
		value := math.Float32frombits(binary.LittleEndian.Uint32(records))
		for i, dtype := range []posencv1.DataType{posencv1.DataType_DATA_TYPE_FP16, bf16} {
			want := records[4+2*i : 6+2*i]
			if got := Narrow(dtype, []float32{value}, 1); !bytes.Equal(got.Data, want) {
				t.Errorf("%v of %v is %x, must be %x", dtype, value, got.Data, want)
			}
			wide, err := Values[float32](&posencv1.Tensor{Dtype: dtype, Shape: []int64{1}, Data: want})
			check(t, err)
			if again := Narrow(dtype, wide, 1); !bytes.Equal(again.Data, want) {
				t.Errorf("%v %x is read as %v", dtype, want, wide[0])
			}
		}
	}
}

func TestTensorsOfEveryType(t *testing.T) {
	there := func(want, got any, err error) {
		t.Helper()
		check(t, err)
		if !reflect.DeepEqual(want, got) {
			t.Errorf("%v became %v", want, got)
		}
	}
	floats, err := Values[float32](Tensor([]float32{1.5, -2}, 2))
	there([]float32{1.5, -2}, floats, err)
	doubles, err := Values[float64](Tensor([]float64{1.1}, 1))
	there([]float64{1.1}, doubles, err)
	ints, err := Values[int32](Tensor([]int32{-1, 2}, 2))
	there([]int32{-1, 2}, ints, err)
	longs, err := Values[int64](Tensor([]int64{-1 << 40}, 1))
	there([]int64{-1 << 40}, longs, err)
	bools, err := Values[bool](Tensor([]bool{true, false}, 2))
	there([]bool{true, false}, bools, err)
	_, err = Values[float64](Tensor([]float32{1}, 1))
	says(t, err, "dtype is DATA_TYPE_FP32, must be DATA_TYPE_FP64")
	_, err = Values[float32](Tensor([]float32{1}, 2))
	says(t, err, "data is 4 bytes, must be 8")
}

// Makes the calls in POSENC_TEST_DATA/calls and compares all fields of the answers, except for counters.
func TestEveryCall(t *testing.T) {
	client := connect(t, "ADDRESS", Options{})
	stub := reflect.ValueOf(client)
	entries, err := os.ReadDir(filepath.Join(setting(t, "DATA"), "calls"))
	check(t, err)
	called := map[string]bool{}
	for _, entry := range entries {
		name := strings.SplitN(entry.Name(), "-", 2)[1]
		called[name] = true
		method := stub.MethodByName(name)
		request := reflect.New(method.Type().In(1).Elem())
		check(t, proto.Unmarshal(read(t, "calls", entry.Name(), "request"), request.Interface().(proto.Message)))
		results := method.Call([]reflect.Value{reflect.ValueOf(context.Background()), request})
		if err, _ := results[1].Interface().(error); err != nil {
			t.Fatalf("%s: %v", entry.Name(), err)
		}
		next := func() (proto.Message, error) { return results[0].Interface().(proto.Message), nil }
		if strings.HasPrefix(name, "Stream") {
			next = func() (proto.Message, error) {
				received := results[0].MethodByName("Recv").Call(nil)
				err, _ := received[1].Interface().(error)
				return received[0].Interface().(proto.Message), err
			}
		}
		files, _ := filepath.Glob(filepath.Join(setting(t, "DATA"), "calls", entry.Name(), "answer-*"))
		for i := range files {
			got, err := next()
			check(t, err)
			want := got.ProtoReflect().New().Interface()
			check(t, proto.Unmarshal(read(t, "calls", entry.Name(), fmt.Sprintf("answer-%d", i)), want))
			if info, ok := got.(*posencv1.GetServerInfoResponse); ok {
				got, want = info.Limits, want.(*posencv1.GetServerInfoResponse).Limits
			}
			if !proto.Equal(got, want) {
				t.Errorf("%s: answer %d is %v, must be %v", entry.Name(), i, got, want)
			}
		}
	}
	if len(called) != 15 { // all methods but StreamApplyRotary
		t.Errorf("called %v", called)
	}
}

func TestARefusalHasDetails(t *testing.T) {
	request := rotation(fp32, 1)
	config := bytes.Replace(read(t, "config.json"), []byte("500000.0"), []byte("-1"), 1)
	request.Rotary = model(config)
	_, err := connect(t, "ADDRESS", Options{}).ApplyRotary(context.Background(), request)
	var refused *Error
	if !errors.As(err, &refused) {
		t.Fatalf("%v is no Error", err)
	}
	if refused.Code != codes.InvalidArgument || refused.Reason != "OUT_OF_RANGE" || refused.Started ||
		refused.Value != "-1" || refused.Field != "rotary.model.config_json.rope_theta" || !strings.HasPrefix(refused.Limit, "must be") {
		t.Errorf("%+v", refused)
	}
}

func TestABusyServerSaysWhenToTryAgain(t *testing.T) {
	client := connect(t, "BUSY", Options{NoRetries: true})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stream, err := client.StreamApplyRotary(ctx)
	check(t, err)
	header := &posencv1.StreamApplyRotaryRequest_Header{Header: headerOf(rotation(fp32, 1))}
	check(t, stream.Send(&posencv1.StreamApplyRotaryRequest{Part: header}))
	_, err = stream.Recv() // from now on the server has its one call
	check(t, err)
	_, err = client.ApplyRotary(context.Background(), rotation(fp32, 1))
	var refused *Error
	if !errors.As(err, &refused) || refused.Code != codes.Unavailable || refused.Reason != "OVERLOADED" ||
		refused.Started || refused.Pushback != 100*time.Millisecond {
		t.Errorf("%+v", err)
	}
}

func wishing(wish string, request *posencv1.ApplyRotaryRequest) *posencv1.ApplyRotaryRequest {
	request.Hints = &posencv1.CallHints{RequestId: wish + " go " + time.Now().String()}
	return request
}

func TestRefusedCallsAreRetried(t *testing.T) {
	client := connect(t, "REFUSING", Options{})
	_, err := client.ApplyRotary(context.Background(), wishing("refuse 4 pushback 1", rotation(fp32, 512))) // 8 MiB
	check(t, err)
	var refused *Error
	_, err = client.ApplyRotary(context.Background(), wishing("refuse 1 pushback -1", rotation(fp32, 1)))
	if !errors.As(err, &refused) || refused.Pushback >= 0 {
		t.Errorf("the server forbade a retry: %v", err)
	}
	client = connect(t, "REFUSING", Options{NoRetries: true})
	_, err = client.ApplyRotary(context.Background(), wishing("refuse 1 pushback 1", rotation(fp32, 1)))
	if !errors.As(err, &refused) || refused.Pushback != time.Millisecond {
		t.Errorf("retries are off: %v", err)
	}
}

// The last bit of a float64 angle is below 2^-35 at position 131,071.
// Connecting to RESTART stops the server at RESTARTING and starts another one there; the connection ends when it serves.
func TestRestartsOfTheServerFailNoCall(t *testing.T) {
	done := make(chan struct{})
	ended := make(chan error)
	const callers = 4
	for range callers {
		client := connect(t, "RESTARTING", Options{})
		go func() {
			for calls := int64(0); ; calls++ {
				select {
				case <-done:
					ended <- nil
					return
				default:
				}
				if _, err := client.ApplyRotary(context.Background(), rotation(fp32, 1+63*(calls%2))); err != nil {
					ended <- fmt.Errorf("call %d: %w", calls, err)
					return
				}
			}
		}()
	}
	for range 3 {
		restart, err := net.Dial("tcp", setting(t, "RESTART"))
		check(t, err)
		io.Copy(io.Discard, restart)
		restart.Close()
	}
	close(done)
	for range callers {
		check(t, <-ended)
	}
}

func TestAnAnswerOf64MiB(t *testing.T) {
	const rows = 131_072
	answer, err := connect(t, "ADDRESS", Options{}).GenerateTable(context.Background(), &posencv1.GenerateTableRequest{
		Rotary: settings(), Positions: &posencv1.Positions{Source: &posencv1.Positions_Offset{}}, Count: proto.Int64(rows),
		Dtype: fp32, Form: posencv1.TableForm_TABLE_FORM_HALF_WIDTH,
	})
	check(t, err)
	cos, err := Values[float32](answer.Cos)
	check(t, err)
	sin, err := Values[float32](answer.Sin)
	check(t, err)
	if len(cos)+len(sin) != 16<<20 {
		t.Fatalf("%d + %d elements", len(cos), len(sin))
	}
	for row := 0; row < rows; row += 4099 {
		for k := 0; k < 64; k++ {
			s, c := math.Sincos(float64(row) * math.Pow(10000, -float64(k)/64))
			if math.Abs(float64(cos[64*row+k])-c) > 0x1p-25+1e-9 || math.Abs(float64(sin[64*row+k])-s) > 0x1p-25+1e-9 {
				t.Fatalf("row %d, pair %d: %v, %v; must be %v, %v", row, k, cos[64*row+k], sin[64*row+k], c, s)
			}
		}
	}
}

func TestChunksGiveTheBytesOfOneCall(t *testing.T) {
	for _, dtype := range []posencv1.DataType{fp32, bf16} {
		request := rotation(dtype, 40)
		request.K = &posencv1.RotaryOperand{Tensor: narrowed(dtype, values(40*8*128), 1, 40, 8, 128)}
		whole, err := connect(t, "ADDRESS", Options{}).ApplyRotary(context.Background(), request)
		check(t, err)
		for _, peer := range []string{"ADDRESS", "REFUSING"} { // the second one ends the first stream early
			client := connect(t, peer, Options{})
			inChunks, err := client.RotateInChunks(context.Background(), wishing("refuse 1 pushback 1", request), 100_000)
			check(t, err)
			if !bytes.Equal(whole.Q.Data, inChunks.Q.Data) || !bytes.Equal(whole.K.Data, inChunks.K.Data) {
				t.Errorf("%v, %s: other bytes", dtype, peer)
			}
			if inChunks.Info.GetRotaryDim() != 128 {
				t.Errorf("%v", inChunks.Info)
			}
		}
	}
}

func TestTilesGiveTheBytesOfOneCall(t *testing.T) {
	client := connect(t, "ADDRESS", Options{})
	table := &posencv1.GenerateTableRequest{
		Rotary: settings(), Positions: &posencv1.Positions{Source: &posencv1.Positions_Offset{Offset: 7}},
		Count: proto.Int64(100), Dtype: bf16, Form: posencv1.TableForm_TABLE_FORM_DUPLICATED,
	}
	whole, err := client.GenerateTable(context.Background(), table)
	check(t, err)
	tiles := &posencv1.StreamTableRequest{Table: table, RowsPerTile: proto.Int64(7)}
	stream, err := client.StreamTable(context.Background(), tiles)
	check(t, err)
	var cos []byte
	for {
		tile, err := stream.Recv()
		if err == io.EOF {
			break
		}
		check(t, err)
		if tile.RowBegin != int64(len(cos)/256) {
			t.Fatalf("a tile begins at row %d after %d bytes", tile.RowBegin, len(cos))
		}
		cos = append(cos, tile.Cos.Data...)
	}
	if !bytes.Equal(cos, whole.Cos.Data) {
		t.Error("other bytes")
	}
}

func TestTLSWithAClientsCertificate(t *testing.T) {
	file := func(name string) string { return filepath.Join(setting(t, "DATA"), name) }
	mine := &TLS{file("ca.pem"), file("client.pem"), file("client.key"), "server.example"}
	_, err := connect(t, "TLS", Options{TLS: mine}).ApplyRotary(context.Background(), rotation(fp32, 1))
	check(t, err)
	for _, wrong := range []*TLS{{CA: mine.CA}, {mine.CA, mine.Certificate, mine.Key, "other.example"}} {
		_, err = connect(t, "TLS", Options{TLS: wrong, NoRetries: true}).ApplyRotary(context.Background(), rotation(fp32, 1))
		var refused *Error
		if !errors.As(err, &refused) || refused.Code != codes.Unavailable || refused.Reason != "" {
			t.Errorf("%+v: %v", wrong, err)
		}
	}
	_, err = Connect("localhost:1", Options{TLS: &TLS{CA: file("config.json")}})
	says(t, err, "must be a PEM file")
}
