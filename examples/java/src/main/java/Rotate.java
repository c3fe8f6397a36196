import com.google.protobuf.ByteString;
import com.google.rpc.BadRequest;
import dev.posenc.v1.ApplyRotaryRequest;
import dev.posenc.v1.ApplyRotaryResponse;
import dev.posenc.v1.DataType;
import dev.posenc.v1.Layout;
import dev.posenc.v1.ModelConfig;
import dev.posenc.v1.PositionalEncodingServiceGrpc;
import dev.posenc.v1.Positions;
import dev.posenc.v1.RotaryOperand;
import dev.posenc.v1.RotarySource;
import dev.posenc.v1.Tensor;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.StatusRuntimeException;
import io.grpc.protobuf.StatusProto;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.TimeUnit;

/** Rotates a query by the RoPE of a model, on a posenc-server: Rotate ADDRESS CONFIG_JSON */
public final class Rotate {
  public static void main(String[] arguments) throws Exception {
    if (arguments.length != 2) {
      System.err.println("usage: Rotate ADDRESS CONFIG_JSON");
      System.exit(2);
    }
    byte[] config = Files.readAllBytes(Path.of(arguments[1]));
    // gRPC's default lets a client receive 4 MiB a message.
    ManagedChannel channel =
        Grpc.newChannelBuilder(arguments[0], InsecureChannelCredentials.create()).maxInboundMessageSize(1 << 30).build();

    ByteBuffer q = ByteBuffer.allocate(3 * 32 * 128 * Float.BYTES).order(ByteOrder.LITTLE_ENDIAN);
    while (q.hasRemaining()) q.putFloat(1); // one sequence, three tokens, 32 heads of 128 elements
    ApplyRotaryRequest request =
        ApplyRotaryRequest.newBuilder()
            .setRotary(RotarySource.newBuilder()
                .setModel(ModelConfig.newBuilder().setConfigJson(ByteString.copyFrom(config))))
            .setPositions(Positions.newBuilder().setOffset(100_000))
            .setLayout(Layout.LAYOUT_BSHD)
            .setQ(RotaryOperand.newBuilder().setTensor(Tensor.newBuilder()
                .setDtype(DataType.DATA_TYPE_FP32)
                .addAllShape(List.of(1L, 3L, 32L, 128L))
                .setData(ByteString.copyFrom(q.flip()))))
            .build();
    try {
      ApplyRotaryResponse answer = PositionalEncodingServiceGrpc.newBlockingStub(channel)
          .withDeadlineAfter(30, TimeUnit.SECONDS).applyRotary(request);
      ByteBuffer rotated = answer.getQ().getData().asReadOnlyByteBuffer().order(ByteOrder.LITTLE_ENDIAN);
      System.out.println(rotated.getFloat() + " " + rotated.getFloat() + " " + rotated.getFloat() + " " + rotated.getFloat());
    } catch (StatusRuntimeException error) {
      System.err.println(error.getMessage());
      for (com.google.protobuf.Any detail : StatusProto.fromThrowable(error).getDetailsList()) {
        if (detail.is(BadRequest.class)) {
          BadRequest.FieldViolation violation = detail.unpack(BadRequest.class).getFieldViolations(0);
          System.err.println("field " + violation.getField() + ": " + violation.getDescription());
        }
      }
      System.exit(1);
    } finally {
      channel.shutdown();
    }
  }
}
