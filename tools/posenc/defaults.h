// Values that the command takes where the user gave none: what the tensors' shapes and types and the model's file leave
// as the one usual choice. Each is told to Session::Assume(), which says it on standard error.
#pragma once

#include <cstdint>
#include <string>

#include "posenc/v1/service.pb.h"
#include "tools/posenc/session.h"

namespace posenc::command {

// Sets the layout, BSHD or BHSD of four axes and THD of three, if q, k, the positions and the model's numbers of heads
// leave one. Otherwise it stays unset.
void CompleteLayout(v1::ApplyRotaryRequest* request, Session* session);
void CompleteLayout(v1::DiagnoseRequest* request, Session* session);
// Of q and k: from k, add_to and the geometry.
void CompleteLayout(v1::RelativeScoresRequest* request, Session* session);
// Of the answer: from probabilities and add_to.
void CompleteLayout(v1::RelativeValuesRequest* request, Session* session);

// Type of a table or an embedding that goes to the file `out`: the one that the model's config.json names, else FP32. A
// .npy file cannot hold BF16, so it gets FP32. `model` may be null.
v1::DataType UsualDtype(const v1::ModelConfig* model, const std::string& out, Session* session);

// Sets table_layout if the table's shape leaves one.
void CompleteTableLayout(v1::BiasMethod* method, Session* session);
void CompleteTableLayout(v1::Tupe* tupe, Session* session);

// Returns the file's max_position_embeddings, or the GGUF's context_length; 0 if it has none.
int64_t MaxPositionsOf(const v1::ModelConfig& model);

}  // namespace posenc::command
