#include "common/reply.h"

#include <stdlib.h>

void
call_reply_message(struct call *call, const ProtobufCMessage *message)
{
	size_t n = protobuf_c_message_get_packed_size(message);
	uint8_t *bytes = malloc(n + 1);

	if (!bytes)
		abort(); /* a few KiB were not to be had: nothing sane can follow */
	protobuf_c_message_pack(message, bytes);
	call_reply(call, bytes, n);
	free(bytes);
}
