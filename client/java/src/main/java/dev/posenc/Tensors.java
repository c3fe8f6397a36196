package dev.posenc;

import com.google.protobuf.ByteString;
import com.google.protobuf.UnsafeByteOperations;
import dev.posenc.v1.DataType;
import dev.posenc.v1.Tensor;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;
import java.util.stream.Collectors;

/**
 * Converts arrays to tensors and back, both as copies. Elements are in row-major order. Reading throws {@link
 * IllegalArgumentException} if the tensor has another type, or not as many bytes as its shape needs.
 */
public final class Tensors {
  private Tensors() {}

  /** FP32. */
  public static Tensor of(float[] elements, long... shape) {
    ByteBuffer data = allocate(elements.length, Float.BYTES);
    data.asFloatBuffer().put(elements);
    return make(DataType.DATA_TYPE_FP32, data, shape);
  }

  /** FP64. */
  public static Tensor of(double[] elements, long... shape) {
    ByteBuffer data = allocate(elements.length, Double.BYTES);
    data.asDoubleBuffer().put(elements);
    return make(DataType.DATA_TYPE_FP64, data, shape);
  }

  /** INT32. */
  public static Tensor of(int[] elements, long... shape) {
    ByteBuffer data = allocate(elements.length, Integer.BYTES);
    data.asIntBuffer().put(elements);
    return make(DataType.DATA_TYPE_INT32, data, shape);
  }

  /** INT64. */
  public static Tensor of(long[] elements, long... shape) {
    ByteBuffer data = allocate(elements.length, Long.BYTES);
    data.asLongBuffer().put(elements);
    return make(DataType.DATA_TYPE_INT64, data, shape);
  }

  /** BOOL. */
  public static Tensor of(boolean[] elements, long... shape) {
    ByteBuffer data = allocate(elements.length, 1);
    for (boolean element : elements) data.put((byte) (element ? 1 : 0));
    return make(DataType.DATA_TYPE_BOOL, data.rewind(), shape);
  }

  /**
   * FP16 or BF16, rounded to nearest, ties to even. Values beyond the type's range become infinite.
   *
   * @throws IllegalArgumentException if {@code dtype} is another type
   */
  public static Tensor narrow(DataType dtype, float[] elements, long... shape) {
    if (dtype != DataType.DATA_TYPE_FP16 && dtype != DataType.DATA_TYPE_BF16) {
      throw new IllegalArgumentException("dtype is " + dtype + ", must be DATA_TYPE_FP16 or DATA_TYPE_BF16");
    }
    boolean half = dtype == DataType.DATA_TYPE_FP16;
    ByteBuffer data = allocate(elements.length, Short.BYTES);
    for (float element : elements) data.putShort((short) (half ? float16Bits(element) : bfloat16Bits(element)));
    return make(dtype, data.rewind(), shape);
  }

  /** Reads FP32, FP16 or BF16. */
  public static float[] floats(Tensor tensor) {
    ByteBuffer data = dataOf(tensor, DataType.DATA_TYPE_FP32, DataType.DATA_TYPE_FP16, DataType.DATA_TYPE_BF16);
    float[] elements = new float[data.remaining() / elementBytes(tensor.getDtype())];
    if (tensor.getDtype() == DataType.DATA_TYPE_FP32) {
      data.asFloatBuffer().get(elements);
      return elements;
    }
    boolean half = tensor.getDtype() == DataType.DATA_TYPE_FP16;
    for (int i = 0; i < elements.length; ++i) {
      elements[i] = half ? float16Value(data.getShort()) : bfloat16Value(data.getShort());
    }
    return elements;
  }

  public static double[] doubles(Tensor tensor) {
    ByteBuffer data = dataOf(tensor, DataType.DATA_TYPE_FP64);
    double[] elements = new double[data.remaining() / Double.BYTES];
    data.asDoubleBuffer().get(elements);
    return elements;
  }

  public static int[] ints(Tensor tensor) {
    ByteBuffer data = dataOf(tensor, DataType.DATA_TYPE_INT32);
    int[] elements = new int[data.remaining() / Integer.BYTES];
    data.asIntBuffer().get(elements);
    return elements;
  }

  public static long[] longs(Tensor tensor) {
    ByteBuffer data = dataOf(tensor, DataType.DATA_TYPE_INT64);
    long[] elements = new long[data.remaining() / Long.BYTES];
    data.asLongBuffer().get(elements);
    return elements;
  }

  public static boolean[] booleans(Tensor tensor) {
    ByteBuffer data = dataOf(tensor, DataType.DATA_TYPE_BOOL);
    boolean[] elements = new boolean[data.remaining()];
    for (int i = 0; i < elements.length; ++i) elements[i] = data.get() != 0;
    return elements;
  }

  /** Bytes of an element; 0 for an unknown type. */
  static int elementBytes(DataType dtype) {
    return switch (dtype) {
      case DATA_TYPE_FP64, DATA_TYPE_INT64 -> 8;
      case DATA_TYPE_FP32, DATA_TYPE_INT32 -> 4;
      case DATA_TYPE_FP16, DATA_TYPE_BF16 -> 2;
      case DATA_TYPE_BOOL -> 1;
      default -> 0;
    };
  }

  private static ByteBuffer allocate(int elements, int bytes) {
    return ByteBuffer.allocate(Math.multiplyExact(elements, bytes)).order(ByteOrder.LITTLE_ENDIAN);
  }

  private static Tensor make(DataType dtype, ByteBuffer data, long[] shape) {
    // The buffer is not used elsewhere, so it need not be copied.
    Tensor.Builder tensor = Tensor.newBuilder().setDtype(dtype).setData(UnsafeByteOperations.unsafeWrap(data));
    for (long size : shape) tensor.addShape(size);
    return tensor.build();
  }

  private static ByteBuffer dataOf(Tensor tensor, DataType... allowed) {
    if (!Arrays.asList(allowed).contains(tensor.getDtype())) {
      String choices = Arrays.stream(allowed).map(DataType::name).collect(Collectors.joining(" or "));
      throw new IllegalArgumentException("dtype is " + tensor.getDtype() + ", must be " + choices);
    }
    long bytes = elementBytes(tensor.getDtype());
    for (long size : tensor.getShapeList()) bytes *= size;
    ByteString data = tensor.getData();
    if (data.size() != bytes) {
      throw new IllegalArgumentException("data is " + data.size() + " bytes, must be " + bytes);
    }
    return data.asReadOnlyByteBuffer().order(ByteOrder.LITTLE_ENDIAN);
  }

  private static int bfloat16Bits(float value) {
    int bits = Float.floatToRawIntBits(value);
    if (Float.isNaN(value)) return bits >>> 16 | 0x40; // a quiet NaN
    return bits + 0x7FFF + (bits >>> 16 & 1) >>> 16;
  }

  private static float bfloat16Value(short bits) {
    return Float.intBitsToFloat(bits << 16);
  }

  private static int float16Bits(float value) {
    int sign = Float.floatToRawIntBits(value) >>> 16 & 0x8000;
    float magnitude = Math.abs(value);
    if (Float.isNaN(value)) return sign | 0x7E00;
    if (magnitude >= 65520) return sign | 0x7C00; // halfway to 65536, which would be the next value
    // Values below 2^-14 are subnormal: multiples of 2^-24. The only rounding is that of rint. A value that it rounds
    // up to the next power of two carries into the exponent's bits.
    int exponent = Math.max(Math.getExponent(magnitude), -14);
    int units = (int) Math.rint(Math.scalb((double) magnitude, 10 - exponent));
    return sign | (exponent + 14 << 10) + units;
  }

  private static float float16Value(short bits) {
    int exponent = bits >>> 10 & 0x1F;
    int fraction = bits & 0x3FF;
    float magnitude =
        exponent == 31
            ? (fraction == 0 ? Float.POSITIVE_INFINITY : Float.NaN)
            : exponent == 0 ? Math.scalb((float) fraction, -24) : Math.scalb(1024f + fraction, exponent - 25);
    return bits < 0 ? -magnitude : magnitude;
  }
}
