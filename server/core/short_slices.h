// Short turns of a thread on the processor.
#pragma once

namespace posenc::server {

// Asks Linux to run this thread soon after it wakes, even while others compute: its turns are shorter, and so come
// earlier. Without effect before Linux 6.12, and where a sandbox forbids it.
void AskForShortSlices();

}  // namespace posenc::server
