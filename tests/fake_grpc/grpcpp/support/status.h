#pragma once
#include "tests/fake_grpc/fake_grpc.h"
