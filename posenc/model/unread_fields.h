// Fields of a file about the rotation of q and k that its reading leaves out.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "posenc/model/model.h"
#include "posenc/model/part.h"

namespace posenc {

// Adds a note to all layers for each field of the part that was not read and that is one edit away from a field that
// was looked for and that the file does not have.
void NoteMisspelled(const Part& part, std::vector<ModelLayers>& all);

// NoteMisspelled, and a note for each field that was not read and that
//   - says by its name that it is about a rotary embedding or ALiBi, or
//   - is read for some known model type, if the part's own is not known.
// UNSUPPORTED names a scaling of a part of unknown model type that was not read, because the layers would rotate by
// other frequencies than the model's.
absl::Status NoteUnreadFields(const Part& part, std::vector<ModelLayers>& all);

}  // namespace posenc
