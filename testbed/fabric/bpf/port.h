/* What the port program and Python share. Python reads the structs below (layout.py), so there is no second copy.
 * Only __u32 and __u64 members, widest first, so that no padding exists. Index of every map: the port's ifindex.
 */
#ifndef PORT_H
#define PORT_H

#include <linux/types.h>

/* Bits of port_settings.flags. */
#define FLAG_DOWN 1      /* this port or its far end is down: everything sent is lost */
#define FLAG_BLACKHOLE 2 /* drops everything, carrier stays up */

/* Written by Python, read by the program. A threshold of 0 switches its feature off. Sizes in charged bytes
 * (frame on the veth plus `overhead`) unless said otherwise.
 */
struct port_settings {
	__u64 rate;          /* bytes per second; 0: no virtual queue */
	__u64 limit;         /* tail drop of data above this occupancy */
	__u64 control_limit; /* tail drop of control above this occupancy */
	__u64 trim;          /* trim data above this occupancy */
	__u64 ecn_min;       /* random marking begins */
	__u64 ecn_max;       /* everything is marked */
	__u32 overhead;      /* added to each frame */
	__u32 trim_size;     /* frame bytes kept, Ethernet header included */
	__u32 trim_dscp;     /* what a trimmed packet carries: tells a last-hop trim apart */
	__u32 flags;
	__u32 loss;          /* faults of the wire that ends at this port, of 2^32: packets lost on it ... */
	__u32 corrupt;       /* ... and packets that arrive with one byte changed. 0: none, 0xffffffff: all */
};

/* Written by the program, read by Python. Counts since the port was made, except queue_high (since last cleared). */
struct port_counters {
	__u64 packets;          /* accepted by this port, both classes */
	__u64 bytes;            /* their charged bytes */
	__u64 control_packets;  /* of these: high-priority class */
	__u64 control_bytes;
	__u64 marked;           /* set to CE here */
	__u64 trimmed;          /* cut here (then counted again as a control packet) */
	__u64 dropped_queue;    /* over the limit */
	__u64 dropped_fault;    /* swallowed by a fault */
	__u64 helper_failures;  /* a kernel helper refused; the packet was dropped or left unmarked */
	__u64 queue_high;       /* highest occupancy seen by an arriving packet, itself included */
	__u64 busy_until;       /* CLOCK_MONOTONIC ns when the virtual queue runs empty */
	__u64 idle_ns;          /* how long it was empty in all, from its first packet on: unchanged means never dry */
	__u64 delivered_packets; /* came in at this port, those that the wire then loses included */
	__u64 delivered_bytes;   /* their charged bytes */
	__u64 wire_lost;         /* of these: lost by the `loss` setting */
	__u64 wire_corrupted;    /* of these: changed by the `corrupt` setting */
};

#endif
