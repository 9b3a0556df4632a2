// SPDX-License-Identifier: BSD-2-Clause
// uroce_af_xdp.so: the table of libbpf's and libxdp's functions, and through being linked with them the two libraries.
#include "engine/io/xdp_library/calls.h"

extern "C" [[gnu::visibility("default")]] const uroce::io::XdpCalls uroce_xdp_calls = {
#define UROCE_ADDRESS(result, name, parameters, arguments) &(name),
    UROCE_XDP_CALLS(UROCE_ADDRESS)
#undef UROCE_ADDRESS
};
