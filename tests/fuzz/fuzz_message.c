// links: scheduler/front_check.c common/error.c common/utf8.c
/* Any bytes as each message that crosses a process: what parses can be checked and packed again,
 * and comes back the same size. */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>

#include "proto/fetch.pb-c.h"
#include "proto/front.pb-c.h"
#include "proto/lend.pb-c.h"
#include "proto/state.pb-c.h"
#include "proto/work.pb-c.h"
#include "scheduler/front_check.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static const ProtobufCMessageDescriptor *const kinds[] = {
	&hearth__front_request__descriptor, &hearth__front_reply__descriptor,
	&hearth__to_worker__descriptor,     &hearth__from_worker__descriptor,
	&hearth__lend_request__descriptor,  &hearth__lend_reply__descriptor,
	&hearth__fetch__descriptor,         &hearth__fetch_reply__descriptor,
	&hearth__state__descriptor,
};

static void
pack_again(const ProtobufCMessage *message)
{
	size_t n = protobuf_c_message_get_packed_size(message);
	uint8_t *packed = malloc(n + 1);

	if (packed)
		assert(protobuf_c_message_pack(message, packed) == n);
	free(packed);
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
	struct error err;

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		ProtobufCMessage *message = protobuf_c_message_unpack(kinds[i], NULL, n, bytes);

		if (!message)
			continue;
		if (kinds[i] == &hearth__front_request__descriptor)
			front_check((const Hearth__FrontRequest *)message, &err);
		pack_again(message);
		protobuf_c_message_free_unpacked(message, NULL);
	}
	return 0;
}
