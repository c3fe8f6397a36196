import { create } from "@bufbuild/protobuf";
import { DataType, TensorSchema, type Tensor } from "./gen/posenc/v1/tensor_pb.js";

type Elements = Float32Array | Float64Array | Int32Array | BigInt64Array | Uint8Array;
type ElementsType<T> = {
  new (buffer: ArrayBufferLike, byteOffset: number, length: number): T;
  readonly BYTES_PER_ELEMENT: number;
};

const bytesOf: Record<DataType, number> = {
  [DataType.UNSPECIFIED]: 0,
  [DataType.FP32]: 4,
  [DataType.FP16]: 2,
  [DataType.BF16]: 2,
  [DataType.FP64]: 8,
  [DataType.INT32]: 4,
  [DataType.INT64]: 8,
  [DataType.BOOL]: 1,
};

/** Bytes of an element; 0 for an unknown type. */
export function elementBytes(dtype: DataType): number {
  return bytesOf[dtype] ?? 0;
}

/**
 * Makes a tensor of a shape from its elements in row-major order: FP32, FP64, INT32, INT64, or BOOL from a Uint8Array
 * of zeros and ones. It shares the array's memory until the call is made.
 */
export function tensor(elements: Elements, shape: readonly number[]): Tensor {
  requireLittleEndian();
  const data = new Uint8Array(elements.buffer, elements.byteOffset, elements.byteLength);
  return make(dtypeOf(elements.constructor), data, shape);
}

/** Makes an FP16 or BF16 tensor, rounded to nearest, ties to even. Values beyond the type's range become infinite. */
export function narrow(dtype: DataType.FP16 | DataType.BF16, elements: Float32Array, shape: readonly number[]): Tensor {
  requireLittleEndian();
  const bits = new Uint32Array(elements.buffer, elements.byteOffset, elements.length);
  const narrowed = Uint16Array.from(bits, dtype === DataType.BF16 ? bfloat16Bits : float16Bits);
  return make(dtype, new Uint8Array(narrowed.buffer), shape);
}

/**
 * Returns a tensor's elements: `values(answer.q, Float32Array)`. FP16 and BF16 are read as Float32Array, which holds
 * all of their values. The array is a view of the tensor's bytes if they are aligned, otherwise a copy. Throws TypeError
 * if the tensor is absent, has another type, or not as many bytes as its shape needs.
 */
export function values<T extends Elements>(tensor: Tensor | undefined, type: ElementsType<T>): T {
  requireLittleEndian();
  if (!tensor) throw new TypeError("the tensor is absent");
  const { dtype, shape, data } = tensor;
  const count = Number(shape.reduce((product, size) => product * size, 1n));
  const bytes = count * elementBytes(dtype);
  if (data.length !== bytes) {
    throw new TypeError(`data is ${data.length} bytes, must be ${bytes} for ${DataType[dtype]} of shape [${shape}]`);
  }
  const wanted = dtypeOf(type);
  if (dtype === wanted) return aligned(data, type);
  if (wanted !== DataType.FP32 || elementBytes(dtype) !== 2) {
    throw new TypeError(`dtype is ${DataType[dtype]}, must be ${DataType[wanted]}`);
  }
  const bits = aligned(data, Uint16Array);
  if (dtype === DataType.FP16) return Float32Array.from(bits, float16Value) as T;
  return new Float32Array(Uint32Array.from(bits, (half) => half << 16).buffer) as T;
}

/** Returns a typed array over bytes, which it copies if they do not begin at a multiple of the element's size. */
function aligned<T extends Elements | Uint16Array>(data: Uint8Array, type: ElementsType<T>): T {
  // Buffer.slice would not copy.
  const bytes = data.byteOffset % type.BYTES_PER_ELEMENT === 0 ? data : new Uint8Array(data);
  return new type(bytes.buffer, bytes.byteOffset, bytes.length / type.BYTES_PER_ELEMENT);
}

function make(dtype: DataType, data: Uint8Array, shape: readonly number[]): Tensor {
  return create(TensorSchema, { dtype, shape: shape.map(BigInt), data: data as Uint8Array<ArrayBuffer> });
}

function dtypeOf(type: unknown): DataType {
  switch (type) {
    case Float32Array:
      return DataType.FP32;
    case Float64Array:
      return DataType.FP64;
    case Int32Array:
      return DataType.INT32;
    case BigInt64Array:
      return DataType.INT64;
    case Uint8Array:
      return DataType.BOOL;
  }
  throw new TypeError("the elements must be a Float32Array, Float64Array, Int32Array, BigInt64Array or Uint8Array");
}

/** Tensors are little-endian, and typed arrays have the processor's order. */
function requireLittleEndian(): void {
  if (new Uint8Array(Uint16Array.of(1).buffer)[0] !== 1) throw new Error("the processor must be little-endian");
}

function bfloat16Bits(bits: number): number {
  if ((bits & 0x7fffffff) > 0x7f800000) return (bits >>> 16) | 0x40; // a quiet NaN
  return (bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16;
}

function float16Bits(bits: number): number {
  const sign = (bits >>> 16) & 0x8000;
  const magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return sign | 0x7e00; // a quiet NaN
  if (magnitude >= 0x477ff000) return sign | 0x7c00; // from 65520 on, halfway to 65536
  if (magnitude >= 0x38800000) return sign | ((magnitude - 0x38000000 + 0xfff + ((magnitude >>> 13) & 1)) >>> 13);
  // Below 2^-14, float16 values are multiples of 2^-24. The sum rounds to a whole number, ties to even.
  const units = new Float32Array(Uint32Array.of(magnitude).buffer)[0] * 2 ** 24;
  return sign | (units + 2 ** 52 - 2 ** 52);
}

function float16Value(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 0x1f;
  const fraction = bits & 0x3ff;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (exponent ? (1024 + fraction) * 2 ** (exponent - 25) : fraction * 2 ** -24);
}
