#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <google/protobuf/struct.pb.h>

#include "posenc/base/status.h"
#include "tools/files/tensor_file.h"
#include "tools/posenc/deliver.h"
#include "tools/posenc/request_flags.h"
#include "tools/posenc/session.h"
#include "tools/posenc/test_vectors.h"

namespace posenc::command {
namespace {

struct VectorsFlags {
  RotaryFlags rotary;
  uint32_t seed = 1;
  std::string out;
};

absl::Status RunVectors(const VectorsFlags& flags, Session& session) {
  Missing missing;
  flags.rotary.AddMissing(&missing);
  missing.Add(flags.out.empty(), "-o FILE.safetensors");
  POSENC_RETURN_IF_ERROR(missing.Get());
  if (!flags.out.ends_with(".safetensors") && !IsStream(flags.out))
    return UsageError("--out: " + flags.out + " must end in .safetensors");
  POSENC_ASSIGN_OR_RETURN(const v1::RotarySource source, flags.rotary.Get());
  POSENC_ASSIGN_OR_RETURN(const TestVectors vectors, MakeTestVectors(session.backend(), source, flags.seed));
  std::vector<NamedTensor> tensors;
  uint64_t bytes = 0;
  for (const auto& [name, tensor] : vectors.tensors) {
    tensors.push_back({name, &tensor});
    bytes += tensor.data().size();
  }
  POSENC_RETURN_IF_ERROR(session.AllowWriting(flags.out, bytes));
  POSENC_RETURN_IF_ERROR(WriteTensors(flags.out, tensors, vectors.metadata));
  google::protobuf::Struct written;
  for (const auto& [name, tensor] : vectors.tensors) {
    google::protobuf::Struct& about = *(*written.mutable_fields())[name].mutable_struct_value();
    (*about.mutable_fields())["dtype"].set_string_value(v1::DataType_Name(tensor.dtype()));
    for (const int64_t size : tensor.shape()) {
      (*about.mutable_fields())["shape"].mutable_list_value()->add_values()->set_number_value(
          static_cast<double>(size));
    }
    POSENC_RETURN_IF_ERROR(PrintTensor(session, flags.out, HeaderOf(name, tensor)));
  }
  return session.json() && !session.reports_to_stderr() ? PrintJson(session, written) : absl::OkStatus();
}

}  // namespace

Subcommand AddVectors(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand("vectors", "Writes test vectors of a rotary embedding, for other test suites");
  const auto flags = std::make_shared<VectorsFlags>();
  app->add_option("-o,--out", flags->out,
                  "Output file: inputs, positions, tables and rotated tensors (docs/test-vectors.md)")
      ->type_name("FILE.safetensors");
  app->add_option("--seed", flags->seed, "Seed of the random inputs; default 1");
  flags->rotary.Add(*app);
  return {app, [flags](Session& session) { return RunVectors(*flags, session); }};
}

}  // namespace posenc::command
