/* One program for every port: class, virtual queue, ECN, trimming, faults, counters. Loaded once, attached everywhere.
 *
 * Egress decides from a virtual queue that drains at the port's rate, because an egress hook sees no real queue. It is kept
 * as the time when the queue runs empty. The shaper behind it (TBF over pfifo_fast) charges the same bytes per frame, so
 * the two agree to within the shaper's burst.
 * Constants DSCP_* come from testbed/model/codepoints.py at compile time.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "port.h"

#define NS_PER_S 1000000000ULL
#define PRIORITY_HIGH 7 /* TC_PRIO_CONTROL: pfifo_fast band 0 */
#define PRIORITY_DATA 0 /* TC_PRIO_BESTEFFORT: pfifo_fast band 1 */
#define IPV6_HEADER 40
#define IPV6_LENGTH_OFFSET (ETH_HLEN + 4)
#define ECN_MASK 0x30 /* of the second octet of an IPv6 header */

/* Python sets max_entries before loading. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct port_settings);
} settings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct port_counters);
} counters SEC(".maps");

/* Apart from the rest because a map with a lock cannot be mapped into user space. */
struct queue {
	struct bpf_spin_lock lock;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct queue);
} queues SEC(".maps");

enum verdict { ACCEPT, MARK, TRIM, DROP };

struct packet {
	__u64 charged;
	__u32 frames; /* more than one only in a segmentation batch of a host, before the shaper splits it */
	__u32 dscp;
	__u32 ecn;
	__u8 head[2]; /* version, traffic class, start of the flow label */
};

static __always_inline int is_control(__u32 dscp)
{
	return dscp == DSCP_CONTROL || dscp == DSCP_NETWORK_CONTROL || dscp == DSCP_TRIMMED || dscp == DSCP_TRIMMED_LASTHOP;
}

static __always_inline int is_trimmable(__u32 dscp)
{
	return dscp == DSCP_TRIMMABLE || dscp == DSCP_TRIMMABLE_RETX;
}

static __always_inline void classify(struct __sk_buff *skb, struct packet *packet, const struct port_settings *port)
{
	/* What the shaper will charge: for a segmentation batch the kernel has counted the headers of every segment. */
	packet->frames = skb->gso_segs > 1 ? skb->gso_segs : 1;
	packet->charged = skb->wire_len + packet->frames * port->overhead;
	packet->dscp = 0;
	packet->ecn = 0;
	packet->head[0] = 0;
	packet->head[1] = 0;
	if (skb->protocol != bpf_htons(ETH_P_IPV6))
		return;
	if (bpf_skb_load_bytes(skb, ETH_HLEN, packet->head, sizeof(packet->head)) < 0)
		return;
	packet->dscp = (packet->head[0] & 0x0f) << 2 | packet->head[1] >> 6;
	packet->ecn = (packet->head[1] & ECN_MASK) >> 4;
}

/* The port's decision at this occupancy (bytes already waiting). Control is never marked or trimmed. */
static __always_inline enum verdict decide(const struct port_settings *port, const struct packet *packet, __u64 occupancy,
					   __u32 dice)
{
	__u64 after = occupancy + packet->charged;

	if (is_control(packet->dscp))
		return port->control_limit && after > port->control_limit ? DROP : ACCEPT;
	if (port->trim && after > port->trim && is_trimmable(packet->dscp))
		return TRIM;
	if (port->limit && after > port->limit)
		return DROP;
	if (!port->ecn_max || packet->ecn == 0 || packet->ecn == 3 || occupancy <= port->ecn_min)
		return ACCEPT;
	if (occupancy >= port->ecn_max)
		return MARK;
	/* Random ramp: probability (occupancy - min) / (max - min). */
	return (occupancy - port->ecn_min) << 16 > (__u64)(dice & 0xffff) * (port->ecn_max - port->ecn_min) ? MARK : ACCEPT;
}

static __always_inline enum verdict enqueue(struct queue *queue, const struct port_settings *port,
					    struct port_counters *count, const struct packet *packet)
{
	__u32 dice = bpf_get_prandom_u32();
	int control = is_control(packet->dscp);
	__u64 rate = port->rate;
	__u64 occupancy = 0;
	enum verdict verdict;
	/* No helper may be called under the lock; a later holder may so use a time some microseconds old, which is harmless. */
	__u64 now = bpf_ktime_get_ns();

	bpf_spin_lock(&queue->lock);
	if (rate && count->busy_until > now)
		occupancy = (count->busy_until - now) * rate / NS_PER_S;
	else if (count->busy_until) {
		count->idle_ns += now - count->busy_until;
		count->busy_until = now;
	}
	verdict = decide(port, packet, occupancy, dice);
	if (verdict == ACCEPT || verdict == MARK) {
		if (rate) {
			__u64 start = count->busy_until > now ? count->busy_until : now;

			count->busy_until = start + packet->charged * NS_PER_S / rate;
		}
		if (occupancy + packet->charged > count->queue_high)
			count->queue_high = occupancy + packet->charged;
		count->packets += packet->frames;
		count->bytes += packet->charged;
		if (control) {
			count->control_packets += packet->frames;
			count->control_bytes += packet->charged;
		}
		if (verdict == MARK)
			count->marked += 1;
	} else if (verdict == DROP) {
		count->dropped_queue += packet->frames;
	}
	bpf_spin_unlock(&queue->lock);
	return verdict;
}

static __always_inline int mark(struct __sk_buff *skb, struct port_counters *count, const struct packet *packet)
{
	__u8 octet = packet->head[1] | ECN_MASK;

	if (bpf_skb_store_bytes(skb, ETH_HLEN + 1, &octet, 1, 0) < 0)
		__sync_fetch_and_add(&count->helper_failures, 1);
	return TC_ACT_OK;
}

/* Cut the packet and send it to this same port again: it comes back as a control packet. Passing it on in place would be
 * wrong, since the shaper charges the length that was taken before this hook. A packet that is no longer than `trim_size`
 * keeps its length and gets the codepoint and the class all the same, as switches do: its receiver must learn of the queue.
 */
static __always_inline int trim(struct __sk_buff *skb, const struct port_settings *port, struct port_counters *count,
				const struct packet *packet)
{
	__u32 size = port->trim_size;
	__u16 length = bpf_htons(size - ETH_HLEN - IPV6_HEADER);
	__u32 dscp = port->trim_dscp;
	__u8 head[2];

	head[0] = (packet->head[0] & 0xf0) | (dscp >> 2 & 0x0f);
	head[1] = (packet->head[1] & 0x3f) | (dscp & 3) << 6;
	if (skb->len > size && (bpf_skb_change_tail(skb, size, 0) < 0 ||
				bpf_skb_store_bytes(skb, IPV6_LENGTH_OFFSET, &length, 2, 0) < 0))
		goto failed;
	if (bpf_skb_store_bytes(skb, ETH_HLEN, head, 2, 0) < 0)
		goto failed;
	__sync_fetch_and_add(&count->trimmed, 1);
	return bpf_redirect(skb->ifindex, 0);
failed:
	__sync_fetch_and_add(&count->helper_failures, 1);
	__sync_fetch_and_add(&count->dropped_queue, packet->frames);
	return TC_ACT_SHOT;
}

SEC("tc")
int egress(struct __sk_buff *skb)
{
	__u32 key = skb->ifindex;
	struct port_settings *port = bpf_map_lookup_elem(&settings, &key);
	struct port_counters *count = bpf_map_lookup_elem(&counters, &key);
	struct queue *queue = bpf_map_lookup_elem(&queues, &key);
	struct packet packet;

	if (!port || !count || !queue)
		return TC_ACT_SHOT;
	if (port->flags & (FLAG_DOWN | FLAG_BLACKHOLE)) {
		__sync_fetch_and_add(&count->dropped_fault, 1);
		return TC_ACT_SHOT;
	}
	classify(skb, &packet, port);
	skb->priority = is_control(packet.dscp) ? PRIORITY_HIGH : PRIORITY_DATA;
	switch (enqueue(queue, port, count, &packet)) {
	case MARK:
		return mark(skb, count, &packet);
	case TRIM:
		return trim(skb, port, count, &packet);
	case DROP:
		return TC_ACT_SHOT;
	default:
		return TC_ACT_OK;
	}
}

/* Invert one byte somewhere beyond the outer header, as a bad cable would behind a switch that checks nothing. No checksum is
 * repaired: the outer header has none, and what is inside must be caught by its own check (ICRC, UDP, TCP). Inverting a byte
 * always changes a ones' complement sum, and any CRC. Offloads are off, so no checksum is left for the kernel to fill in.
 */
static __always_inline void corrupt(struct __sk_buff *skb, struct port_counters *count)
{
	__u32 offset = ETH_HLEN + IPV6_HEADER;
	__u8 octet;

	if (skb->len <= offset)
		return;
	offset += bpf_get_prandom_u32() % (skb->len - offset);
	if (bpf_skb_load_bytes(skb, offset, &octet, 1) < 0)
		goto failed;
	octet = ~octet;
	if (bpf_skb_store_bytes(skb, offset, &octet, 1, 0) < 0)
		goto failed;
	__sync_fetch_and_add(&count->wire_corrupted, 1);
	return;
failed:
	__sync_fetch_and_add(&count->helper_failures, 1);
}

/* The faults of a wire act here, at its far end: what is lost or changed on it has waited in the queue and used the link. */
SEC("tc")
int ingress(struct __sk_buff *skb)
{
	__u32 key = skb->ifindex;
	struct port_settings *port = bpf_map_lookup_elem(&settings, &key);
	struct port_counters *count = bpf_map_lookup_elem(&counters, &key);

	if (port && count) {
		__sync_fetch_and_add(&count->delivered_packets, 1);
		__sync_fetch_and_add(&count->delivered_bytes, skb->len + port->overhead);
		if (port->loss && bpf_get_prandom_u32() <= port->loss) {
			__sync_fetch_and_add(&count->wire_lost, 1);
			return TC_ACT_SHOT;
		}
		if (port->corrupt && bpf_get_prandom_u32() <= port->corrupt)
			corrupt(skb, count);
	}
	return TC_ACT_UNSPEC; /* go on: a delay line may be attached behind us */
}

/* On a switch's private device: packets whose port is down on this side. The kernel forgets a downed port's routes, so the
 * fault points them here, with the port's own MAC as destination; its index is in the last four octets (plan.mac_of).
 */
SEC("tc")
int lost(struct __sk_buff *skb)
{
	struct port_counters *count;
	__u8 mac[ETH_ALEN];
	__u32 key;

	if (bpf_skb_load_bytes(skb, 0, mac, sizeof(mac)) < 0)
		return TC_ACT_SHOT;
	key = (__u32)mac[2] << 24 | (__u32)mac[3] << 16 | (__u32)mac[4] << 8 | mac[5];
	count = bpf_map_lookup_elem(&counters, &key);
	if (count)
		__sync_fetch_and_add(&count->dropped_fault, 1);
	return TC_ACT_SHOT;
}

char _license[] SEC("license") = "GPL";
