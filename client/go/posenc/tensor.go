package posenc

import (
	"encoding/binary"
	"fmt"
	"math"

	posencv1 "posenc.dev/posenc/v1"
)

// Element is a type of Go that a tensor's type stands for: FP32, FP64, INT32, INT64 and BOOL.
type Element interface {
	float32 | float64 | int32 | int64 | bool
}

// Tensor makes a tensor of a shape from its elements in row-major order. The type is that of the elements. The bytes
// are a copy.
func Tensor[T Element](values []T, shape ...int64) *posencv1.Tensor {
	tensor := &posencv1.Tensor{Dtype: dtypeOf[T](), Shape: shape}
	tensor.Data = make([]byte, len(values)*int(elementSize(tensor.Dtype)))
	if _, err := binary.Encode(tensor.Data, binary.LittleEndian, values); err != nil {
		panic(err) // the types of Element have a fixed size
	}
	return tensor
}

// Narrow makes a tensor of DATA_TYPE_FP16 or DATA_TYPE_BF16, rounded to nearest, ties to even. Values beyond the type's
// range become infinite. It panics if dtype is another type.
func Narrow(dtype posencv1.DataType, values []float32, shape ...int64) *posencv1.Tensor {
	var bits func(float32) uint16
	switch dtype {
	case posencv1.DataType_DATA_TYPE_FP16:
		bits = float16Bits
	case posencv1.DataType_DATA_TYPE_BF16:
		bits = bfloat16Bits
	default:
		panic(fmt.Sprintf("dtype is %v, must be DATA_TYPE_FP16 or DATA_TYPE_BF16", dtype))
	}
	data := make([]byte, 0, 2*len(values))
	for _, value := range values {
		data = binary.LittleEndian.AppendUint16(data, bits(value))
	}
	return &posencv1.Tensor{Dtype: dtype, Shape: shape, Data: data}
}

// Values returns a tensor's elements as a copy. FP16 and BF16 are read as float32, which holds all of their values. It
// returns an error if the tensor has another type, or not as many bytes as its shape needs.
func Values[T Element](tensor *posencv1.Tensor) ([]T, error) {
	count := int64(1)
	for _, size := range tensor.GetShape() {
		count *= size
	}
	stored, size := tensor.GetDtype(), elementSize(tensor.GetDtype())
	if int64(len(tensor.GetData())) != count*size {
		return nil, fmt.Errorf("data is %d bytes, must be %d for %v of shape %v", len(tensor.GetData()), count*size,
			stored, tensor.GetShape())
	}
	wanted := dtypeOf[T]()
	if stored == wanted {
		values := make([]T, count)
		_, err := binary.Decode(tensor.Data, binary.LittleEndian, values)
		return values, err
	}
	if wanted != posencv1.DataType_DATA_TYPE_FP32 || size != 2 {
		return nil, fmt.Errorf("dtype is %v, must be %v", stored, wanted)
	}
	widen := float16Value
	if stored == posencv1.DataType_DATA_TYPE_BF16 {
		widen = bfloat16Value
	}
	values := make([]float32, count)
	for i := range values {
		values[i] = widen(binary.LittleEndian.Uint16(tensor.Data[2*i:]))
	}
	return any(values).([]T), nil
}

func dtypeOf[T Element]() posencv1.DataType {
	switch any(*new(T)).(type) {
	case float32:
		return posencv1.DataType_DATA_TYPE_FP32
	case float64:
		return posencv1.DataType_DATA_TYPE_FP64
	case int32:
		return posencv1.DataType_DATA_TYPE_INT32
	case int64:
		return posencv1.DataType_DATA_TYPE_INT64
	default:
		return posencv1.DataType_DATA_TYPE_BOOL
	}
}

func elementSize(dtype posencv1.DataType) int64 {
	switch dtype {
	case posencv1.DataType_DATA_TYPE_FP64, posencv1.DataType_DATA_TYPE_INT64:
		return 8
	case posencv1.DataType_DATA_TYPE_FP32, posencv1.DataType_DATA_TYPE_INT32:
		return 4
	case posencv1.DataType_DATA_TYPE_FP16, posencv1.DataType_DATA_TYPE_BF16:
		return 2
	case posencv1.DataType_DATA_TYPE_BOOL:
		return 1
	}
	return 0
}

func bfloat16Bits(value float32) uint16 {
	bits := math.Float32bits(value)
	if value != value {
		return uint16(bits>>16) | 0x40 // a quiet NaN, also if the payload's upper bits are 0
	}
	return uint16((bits + 0x7FFF + bits>>16&1) >> 16)
}

func bfloat16Value(bits uint16) float32 { return math.Float32frombits(uint32(bits) << 16) }

func float16Bits(value float32) uint16 {
	sign := uint16(math.Float32bits(value) >> 16 & 0x8000)
	magnitude := math.Abs(float64(value))
	switch {
	case value != value:
		return sign | 0x7E00
	case magnitude >= 65520: // halfway to 65536, which would be the next value
		return sign | 0x7C00
	}
	// Values below 2^-14 are subnormal: multiples of 2^-24. The only rounding is RoundToEven's. A value that it rounds up
	// to the next power of two carries into the exponent's bits.
	exponent := -14
	if magnitude >= 0x1p-14 {
		exponent = math.Ilogb(magnitude)
	}
	units := math.RoundToEven(math.Ldexp(magnitude, 10-exponent))
	return sign | uint16((exponent+14)<<10+int(units))
}

func float16Value(bits uint16) float32 {
	sign := float64(1)
	if bits&0x8000 != 0 {
		sign = -1
	}
	exponent, fraction := int(bits>>10&0x1F), float64(bits&0x3FF)
	switch exponent {
	case 0:
		return float32(math.Copysign(math.Ldexp(fraction, -24), sign))
	case 31:
		if fraction != 0 {
			return float32(math.NaN())
		}
		return float32(math.Inf(int(sign)))
	}
	return float32(sign * math.Ldexp(1024+fraction, exponent-25))
}
