import com.google.protobuf.ByteString;
import dev.posenc.Posenc;
import dev.posenc.PosencError;
import dev.posenc.Tensors;
import dev.posenc.v1.ApplyRotaryRequest;
import dev.posenc.v1.Layout;
import dev.posenc.v1.ModelConfig;
import dev.posenc.v1.Positions;
import dev.posenc.v1.RotaryOperand;
import dev.posenc.v1.RotarySource;
import io.grpc.StatusRuntimeException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.concurrent.TimeUnit;

/** Rotates a query by the RoPE of a model, on a posenc-server: Rotate ADDRESS CONFIG_JSON */
public final class Rotate {
  public static void main(String[] arguments) throws Exception {
    if (arguments.length != 2) {
      System.err.println("usage: Rotate ADDRESS CONFIG_JSON");
      System.exit(2);
    }
    ByteString config = ByteString.copyFrom(Files.readAllBytes(Path.of(arguments[1])));
    float[] q = new float[3 * 32 * 128]; // one sequence, three tokens, 32 heads of 128 elements
    Arrays.fill(q, 1);
    ApplyRotaryRequest request =
        ApplyRotaryRequest.newBuilder()
            .setRotary(RotarySource.newBuilder().setModel(ModelConfig.newBuilder().setConfigJson(config)))
            .setPositions(Positions.newBuilder().setOffset(100_000))
            .setLayout(Layout.LAYOUT_BSHD)
            .setQ(RotaryOperand.newBuilder().setTensor(Tensors.of(q, 1, 3, 32, 128)))
            .build();
    try (Posenc posenc = Posenc.connect(arguments[0])) {
      var answer = posenc.blocking().withDeadlineAfter(30, TimeUnit.SECONDS).applyRotary(request);
      System.out.println(Arrays.toString(Arrays.copyOf(Tensors.floats(answer.getQ()), 4)));
    } catch (StatusRuntimeException failed) {
      PosencError error = PosencError.of(failed);
      if (error.field().isEmpty()) throw failed;
      System.err.println("field " + error.field() + " is " + error.value() + ": " + error.limit());
      System.exit(1);
    }
  }
}
