#include "cuda/launch.h"
#include "cuda/runtime/calls.h"
#include "cuda/runtime/copies.h"
#include "cuda/runtime/device_table.h"
#include "cuda/runtime/error.h"

namespace posenc::cuda {

void Rotate(Device& device, const posenc_rotate& work) {
  if (work.tokens == 0 || work.heads == 0) return;
  const uint64_t head_row = work.head_dim * SizeOf(work.dtype);
  const uint64_t bytes = work.tokens * work.heads * head_row;
  const bool staged = work.x.device == nullptr;
  if (staged) {
    CheckPieces(work.x, bytes);
    CheckPieces(work.y, bytes);
  }
  const Device::Lease slot = device.Borrow();
  DeviceTable table(*slot, work.table);
  Scratch tensor;
  if (staged) {
    tensor = Scratch(*slot, bytes);
    UploadPieces(*slot, work.x, bytes, tensor.data());
  }
  table.Complete(staged);
  RotateArguments arguments = {};
  arguments.dtype = static_cast<posenc_dtype>(work.dtype);
  arguments.rounding = static_cast<posenc_rounding>(work.rounding);
  arguments.input_pairing = static_cast<posenc_pairing>(work.input_pairing);
  arguments.output_pairing = static_cast<posenc_pairing>(work.output_pairing);
  arguments.half_split_parts = work.half_split_parts;
  arguments.head_dim = work.head_dim;
  arguments.rotary_offset = work.rotary_offset;
  arguments.pairs = work.table.pairs;
  arguments.tokens = work.tokens;
  arguments.heads = work.heads;
  arguments.table_is_double = work.table.dtype == POSENC_FP64;
  arguments.cos = table.cos();
  arguments.sin = table.sin();
  arguments.x = staged ? tensor.data() : work.x.device;
  arguments.y = staged ? tensor.data() : work.y.device;
  arguments.token_stride = !staged ? work.token_stride : work.heads_first ? head_row : work.heads * head_row;
  arguments.head_stride = !staged ? work.head_stride : work.heads_first ? work.tokens * head_row : head_row;
  Check(LaunchRotate(arguments, slot->stream), "rotating");
  if (staged) DownloadToStaging(*slot, tensor.data(), bytes);
  slot->Await();
  if (staged) StagingToPieces(*slot, work.y);
}

}  // namespace posenc::cuda
