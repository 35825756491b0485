package kernel

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// operationTable is the operations of a call that does many things, or of something that many calls do, which has
// a name of its own then.
type operationTable struct {
	call   string
	groups []operationGroup
	name   func(op uint64) string // of an operation without a row; nil: its number
	// claims and why are those of an operation without a row; nil: everything, since it is not known what it does.
	claims []string
	why    string
}

// operationGroup is operations of one account: names and numbers, separated by spaces. Before a number can stand what
// it is of: the kind of file for ioctl, the level for setsockopt and for control messages, the family of netlink.
type operationGroup struct {
	account Account
	claims  []string
	why     string
	rows    string
}

type namedOperation struct {
	name string
	op   uint64 // as in bpf/model.h, without the table
}

// objectKinds are what an ioctl can be of, in the order of enum object_kind in bpf/record.h.
var objectKinds = []string{"any", "file", "fifo", "socket", "terminal", "character", "block", "other"}

// levels are those of setsockopt and of control messages, and families of netlink.
var levels = map[string]uint64{"ip": 0, "sol": 1, "tcp": 6, "udp": 17, "vsock": 40, "ipv6": 41, "icmpv6": 58,
	"raw": 255, "netlink": 270, "alg": 279,
	"route": 0, "diag": 4, "audit": 9, "netfilter": 12, "generic": 16}

// operations are those of the group.
func (g *operationGroup) operations() (list []namedOperation) {
	f := strings.Fields(g.rows)
	for i := 0; i+1 < len(f); i += 2 {
		of, number, ok := strings.Cut(f[i+1], ":")
		if !ok {
			of, number = "", f[i+1]
		}
		n, err := strconv.ParseUint(number, 0, 48)
		if err != nil {
			panic(fmt.Sprintf("kernel: operation %s: %v", f[i], err))
		}
		o := namedOperation{f[i], n}
		if level, known := levels[of]; known {
			o.op |= level << 32
		} else if kind := slices.Index(objectKinds, of); kind >= 0 {
			o.op |= uint64(kind) << 48
			if kind > 0 {
				o.name += " on a " + of
			}
		} else if ok {
			panic("kernel: operation " + f[i] + " of " + of)
		}
		list = append(list, o)
	}
	return list
}

// opening is what an operation opens.
func (t *operationTable) opening(op uint64) (name string, claims []string, why string) {
	for _, g := range t.groups {
		for _, o := range g.operations() {
			if o.op == op || o.op == op&^(255<<48) {
				return o.name, g.claims, g.why
			}
		}
	}
	name = strconv.FormatUint(op, 10)
	if t.name != nil {
		name = t.name(op)
	}
	claims, why = t.rest()
	return name, claims, why
}

// rest is what an operation without a row opens, and why.
func (t *operationTable) rest() (claims []string, why string) {
	if t.claims == nil {
		return everything, unknownWhy
	}
	return t.claims, t.why
}

const (
	operationsMost = 1024 // OPERATIONS of bpf/record.h
	noRow          = 511  // NO_ROW there
)

// operationRow is a row of the programs' table.
type operationRow struct {
	key     uint64
	account Account
}

// operationRows are the operations of all tables, in the order of their keys.
func operationRows() (rows []operationRow) {
	for i, t := range operationTables {
		for _, g := range t.groups {
			for _, o := range g.operations() {
				rows = append(rows, operationRow{uint64(i+1)<<56 | o.op, g.account})
			}
		}
	}
	slices.SortFunc(rows, func(a, b operationRow) int {
		if a.key < b.key {
			return -1
		}
		return 1
	})
	return rows
}

// small is WORD_BITS of bpf/record.h.
const small = 64

// ownOperations has a bit for each small operation that is the caller's own, of the calls that programs make most. See
// own_operations in bpf/model.h.
func ownOperations() []uint64 {
	own := make([]uint64, (len(operationTables)+1)*small)
	for i, t := range operationTables {
		for _, g := range t.groups {
			for _, o := range g.operations() {
				level, op := o.op>>32, o.op&(1<<32-1)
				bits := t.call == "fcntl" || t.call == "prctl" || t.call == "setsockopt"
				if bits && g.account == AccountOwn && level < small && op < small {
					own[(i+1)*small+int(level)] |= 1 << op
				}
			}
		}
	}
	return own
}

const (
	otherWay  = "it changes on which way, or to whom, packets go"
	multicast = "the kernel tells other hosts of the group, and its packets have no connect"
)

// operationTables are in the order of enum table in bpf/record.h.
var operationTables = []operationTable{
	{call: "fcntl", groups: []operationGroup{
		{AccountOwn, nil, descriptors, `F_DUPFD 0 F_GETFD 1 F_SETFD 2 F_GETFL 3 F_SETFL 4 F_GETOWN 9 F_GETSIG 11
			F_GETOWN_EX 16 F_GETOWNER_UIDS 17 F_DUPFD_QUERY 1027 F_CREATED_QUERY 1028 F_DUPFD_CLOEXEC 1030
			F_SETPIPE_SZ 1031 F_GETPIPE_SZ 1032 F_ADD_SEALS 1033 F_GET_SEALS 1034 F_GET_RW_HINT 1035
			F_SET_RW_HINT 1036 F_GET_FILE_RW_HINT 1037 F_SET_FILE_RW_HINT 1038 F_NOTIFY 1026`},
		{AccountOwn, nil, locks, `F_GETLK 5 F_SETLK 6 F_SETLKW 7 F_GETLK64 12 F_SETLK64 13 F_SETLKW64 14 F_OFD_GETLK 36
			F_OFD_SETLK 37 F_OFD_SETLKW 38 F_SETLEASE 1024 F_GETLEASE 1025 F_CANCELLK 1029 F_GETDELEG 1039
			F_SETDELEG 1040`},
		{AccountRecorded, nil, asLine, `F_SETOWN 8 F_SETSIG 10 F_SETOWN_EX 15`},
	}},
	{call: "ioctl", name: ioctlName, groups: []operationGroup{
		{AccountOwn, nil, descriptors, `FIOCLEX 0x5451 FIONCLEX 0x5450 FIONBIO 0x5421 FIOASYNC 0x5452 FIOQSIZE 0x5460
			NS_GET_USERNS file:0xb701 NS_GET_PARENT file:0xb702 NS_GET_NSTYPE file:0xb703
			NS_GET_OWNER_UID file:0xb704 TIOCGPTPEER terminal:0x5441 SIOCUNIXFILE socket:0x89e0
			SIOCGSKNS socket:0x894c`},
		{AccountOwn, nil, reads, `FIONREAD file:0x541b FIONREAD fifo:0x541b FIONREAD socket:0x541b FIONREAD other:0x541b
			FIONREAD terminal:0x541b FIGETBSZ file:2 FIBMAP file:1 FS_IOC_GETFLAGS file:0x80086601
			FS_IOC32_GETFLAGS file:0x80046601 FS_IOC_GETVERSION file:0x80087601 FS_IOC_FIEMAP file:0xc020660b
			FS_IOC_FSGETXATTR file:0x801c581f FS_IOC_GETFSLABEL file:0x81009431 FS_IOC_GETFSUUID file:0x80111500
			RNDGETENTCNT character:0x80045200 BLKGETSIZE block:0x1260 BLKGETSIZE64 block:0x80081272
			BLKSSZGET block:0x1268 BLKPBSZGET block:0x127b BLKROGET block:0x125e BLKIOMIN block:0x1278
			BLKIOOPT block:0x1279 BLKALIGNOFF block:0x127a BLKDISCARDZEROES block:0x127c
			BLKROTATIONAL block:0x127e SIOCOUTQ socket:0x5411 FIOGETOWN socket:0x8903 SIOCGPGRP socket:0x8904
			SIOCATMARK socket:0x8905 SIOCGSTAMP socket:0x8906 SIOCGSTAMPNS socket:0x8907
			SIOCGSTAMP_NEW socket:0x80108906 SIOCGSTAMPNS_NEW socket:0x80108907 SIOCGIFNAME socket:0x8910
			SIOCGIFCONF socket:0x8912 SIOCGIFFLAGS socket:0x8913 SIOCGIFADDR socket:0x8915
			SIOCGIFDSTADDR socket:0x8917 SIOCGIFBRDADDR socket:0x8919 SIOCGIFNETMASK socket:0x891b
			SIOCGIFMETRIC socket:0x891d SIOCGIFMEM socket:0x891f SIOCGIFMTU socket:0x8921
			SIOCGIFHWADDR socket:0x8927 SIOCGIFINDEX socket:0x8933 SIOCGIFPFLAGS socket:0x8935
			SIOCGIFCOUNT socket:0x8938 SIOCGIFTXQLEN socket:0x8942 SIOCGIFMAP socket:0x8970
			PIDFD_GET_CGROUP_NAMESPACE other:0xff01 PIDFD_GET_IPC_NAMESPACE other:0xff02
			PIDFD_GET_MNT_NAMESPACE other:0xff03 PIDFD_GET_NET_NAMESPACE other:0xff04
			PIDFD_GET_PID_NAMESPACE other:0xff05 PIDFD_GET_PID_FOR_CHILDREN_NAMESPACE other:0xff06
			PIDFD_GET_TIME_NAMESPACE other:0xff07 PIDFD_GET_TIME_FOR_CHILDREN_NAMESPACE other:0xff08
			PIDFD_GET_USER_NAMESPACE other:0xff09 PIDFD_GET_UTS_NAMESPACE other:0xff0a`},
		{AccountOwn, nil, terminal, `TCGETS terminal:0x5401 TCSETS terminal:0x5402 TCSETSW terminal:0x5403
			TCSETSF terminal:0x5404 TCGETA terminal:0x5405 TCSETA terminal:0x5406 TCSETAW terminal:0x5407
			TCSETAF terminal:0x5408 TCSBRK terminal:0x5409 TCXONC terminal:0x540a TCFLSH terminal:0x540b
			TIOCEXCL terminal:0x540c TIOCNXCL terminal:0x540d TIOCSCTTY terminal:0x540e TIOCGPGRP terminal:0x540f
			TIOCSPGRP terminal:0x5410 TIOCOUTQ terminal:0x5411 TIOCGWINSZ terminal:0x5413
			TIOCSWINSZ terminal:0x5414 TIOCMGET terminal:0x5415 TIOCPKT terminal:0x5420 TIOCNOTTY terminal:0x5422
			TIOCGETD terminal:0x5424 TCSBRKP terminal:0x5425 TIOCSBRK terminal:0x5427 TIOCCBRK terminal:0x5428
			TIOCGSID terminal:0x5429 TIOCGPTN terminal:0x80045430 TIOCSPTLCK terminal:0x40045431
			TIOCGDEV terminal:0x80045432 TCGETS2 terminal:0x802c542a TCSETS2 terminal:0x402c542b
			TCSETSW2 terminal:0x402c542c TCSETSF2 terminal:0x402c542d TIOCSIG terminal:0x40045436
			TIOCGPKT terminal:0x80045438 TIOCGPTLCK terminal:0x80045439 TIOCGEXCL terminal:0x80045440`},
		{AccountOwn, nil, opened, `FICLONE file:0x40049409 FICLONERANGE file:0x4020940d FIDEDUPERANGE file:0xc0189436`},
		{AccountRecorded, nil, asLine, `FIOSETOWN 0x8901 SIOCSPGRP 0x8902 TIOCSTI 0x5412 TIOCLINUX 0x541c
			TUNSETIFF 0x400454ca`},
		{AccountOpen, opensFiles, changesAttributes, `FS_IOC_SETFLAGS file:0x40086602 FS_IOC32_SETFLAGS file:0x40046602
			FS_IOC_FSSETXATTR file:0x401c5820 FS_IOC_SETVERSION file:0x40087602
			FS_IOC_SETFSLABEL file:0x41009432`},
		{AccountOpen, opensHosts, "it changes the settings of a network, or asks a driver to", `SIOCADDRT socket:0x890b
			SIOCDELRT socket:0x890c SIOCSIFLINK socket:0x8911 SIOCSIFFLAGS socket:0x8914 SIOCSIFADDR socket:0x8916
			SIOCSIFDSTADDR socket:0x8918 SIOCSIFBRDADDR socket:0x891a SIOCSIFNETMASK socket:0x891c
			SIOCSIFMETRIC socket:0x891e SIOCSIFMTU socket:0x8922 SIOCSIFNAME socket:0x8923
			SIOCSIFHWADDR socket:0x8924 SIOCSIFHWBROADCAST socket:0x8937 SIOCADDMULTI socket:0x8931
			SIOCDELMULTI socket:0x8932 SIOCSIFPFLAGS socket:0x8934 SIOCDIFADDR socket:0x8936
			SIOCGIFBR socket:0x8940 SIOCSIFBR socket:0x8941 SIOCSIFTXQLEN socket:0x8943 SIOCETHTOOL socket:0x8946
			SIOCGMIIPHY socket:0x8947 SIOCGMIIREG socket:0x8948 SIOCSMIIREG socket:0x8949 SIOCDARP socket:0x8953
			SIOCGARP socket:0x8954 SIOCSARP socket:0x8955 SIOCSIFMAP socket:0x8971 SIOCBRADDBR socket:0x89a0
			SIOCBRDELBR socket:0x89a1 SIOCBRADDIF socket:0x89a2 SIOCBRDELIF socket:0x89a3
			SIOCADDTUNNEL socket:0x89f1 SIOCDELTUNNEL socket:0x89f2 SIOCCHGTUNNEL socket:0x89f3
			TIOCSETD terminal:0x5423`},
		{AccountOpen, opensFiles, "the kernel writes to the file behind the device", `LOOP_SET_FD block:0x4c00
			LOOP_CHANGE_FD block:0x4c06 LOOP_CONFIGURE block:0x4c0a LOOP_SET_STATUS64 block:0x4c04`},
	}},
	{call: "prctl", groups: []operationGroup{
		{AccountOwn, nil, settings, `PR_SET_PDEATHSIG 1 PR_GET_PDEATHSIG 2 PR_GET_DUMPABLE 3 PR_GET_UNALIGN 5
			PR_SET_UNALIGN 6 PR_GET_KEEPCAPS 7 PR_GET_FPEMU 9 PR_SET_FPEMU 10 PR_GET_FPEXC 11 PR_SET_FPEXC 12
			PR_GET_TIMING 13 PR_SET_TIMING 14 PR_SET_NAME 15 PR_GET_NAME 16 PR_GET_ENDIAN 19 PR_SET_ENDIAN 20
			PR_GET_SECCOMP 21 PR_CAPBSET_READ 23 PR_GET_TSC 25 PR_SET_TSC 26 PR_GET_SECUREBITS 27
			PR_SET_TIMERSLACK 29 PR_GET_TIMERSLACK 30 PR_TASK_PERF_EVENTS_DISABLE 31
			PR_TASK_PERF_EVENTS_ENABLE 32 PR_MCE_KILL 33 PR_MCE_KILL_GET 34 PR_GET_CHILD_SUBREAPER 37
			PR_GET_NO_NEW_PRIVS 39 PR_GET_TID_ADDRESS 40 PR_SET_THP_DISABLE 41 PR_GET_THP_DISABLE 42
			PR_MPX_ENABLE_MANAGEMENT 43 PR_MPX_DISABLE_MANAGEMENT 44 PR_SET_FP_MODE 45 PR_GET_FP_MODE 46
			PR_SVE_SET_VL 50 PR_SVE_GET_VL 51 PR_GET_SPECULATION_CTRL 52 PR_SET_SPECULATION_CTRL 53
			PR_PAC_RESET_KEYS 54 PR_SET_TAGGED_ADDR_CTRL 55 PR_GET_TAGGED_ADDR_CTRL 56 PR_SET_IO_FLUSHER 57
			PR_GET_IO_FLUSHER 58 PR_SET_SYSCALL_USER_DISPATCH 59 PR_PAC_SET_ENABLED_KEYS 60
			PR_PAC_GET_ENABLED_KEYS 61 PR_SME_SET_VL 63 PR_SME_GET_VL 64 PR_SET_MDWE 65 PR_GET_MDWE 66
			PR_SET_MEMORY_MERGE 67 PR_GET_MEMORY_MERGE 68 PR_GET_SHADOW_STACK_STATUS 74
			PR_SET_SHADOW_STACK_STATUS 75 PR_LOCK_SHADOW_STACK_STATUS 76 PR_TIMER_CREATE_RESTORE_IDS 77
			PR_FUTEX_HASH 78 PR_GET_AUXV 0x41555856 PR_SET_VMA 0x53564d41`},
		{AccountRecorded, nil, asLine, `PR_SET_DUMPABLE 4 PR_SET_KEEPCAPS 8 PR_SET_SECCOMP 22 PR_CAPBSET_DROP 24
			PR_SET_SECUREBITS 28 PR_SET_MM 35 PR_SET_CHILD_SUBREAPER 36 PR_SET_NO_NEW_PRIVS 38 PR_CAP_AMBIENT 47
			PR_SET_PTRACER 0x59616d61`},
		{AccountOpen, opensPrivilege, "it says with which processes others may share a core", `PR_SCHED_CORE 62`},
	}},
	{call: "setsockopt", name: optionName, groups: []operationGroup{
		{AccountOwn, nil, receives, `SO_DEBUG sol:1 SO_REUSEADDR sol:2 SO_BROADCAST sol:6 SO_SNDBUF sol:7
			SO_RCVBUF sol:8 SO_KEEPALIVE sol:9 SO_OOBINLINE sol:10 SO_NO_CHECK sol:11
			SO_PRIORITY sol:12 SO_LINGER sol:13 SO_REUSEPORT sol:15 SO_PASSCRED sol:16
			SO_RCVLOWAT sol:18 SO_SNDLOWAT sol:19 SO_RCVTIMEO sol:20 SO_SNDTIMEO sol:21
			SO_ATTACH_FILTER sol:26 SO_DETACH_FILTER sol:27 SO_TIMESTAMP sol:29 SO_SNDBUFFORCE sol:32
			SO_RCVBUFFORCE sol:33 SO_PASSSEC sol:34 SO_TIMESTAMPNS sol:35 SO_TIMESTAMPING sol:37
			SO_RXQ_OVFL sol:40 SO_WIFI_STATUS sol:41 SO_PEEK_OFF sol:42 SO_NOFCS sol:43
			SO_LOCK_FILTER sol:44 SO_SELECT_ERR_QUEUE sol:45 SO_BUSY_POLL sol:46
			SO_MAX_PACING_RATE sol:47 SO_INCOMING_CPU sol:49 SO_ATTACH_REUSEPORT_CBPF sol:51
			SO_ZEROCOPY sol:60 SO_TXTIME sol:61 SO_TIMESTAMP_NEW sol:63 SO_TIMESTAMPNS_NEW sol:64
			SO_TIMESTAMPING_NEW sol:65 SO_RCVTIMEO_NEW sol:66 SO_SNDTIMEO_NEW sol:67
			SO_DETACH_REUSEPORT_BPF sol:68 SO_PREFER_BUSY_POLL sol:69 SO_BUSY_POLL_BUDGET sol:70
			SO_BUF_LOCK sol:72 SO_RESERVE_MEM sol:73 SO_TXREHASH sol:74 SO_RCVMARK sol:75
			SO_PASSPIDFD sol:76 SO_RCVPRIORITY sol:82 SO_PASSRIGHTS sol:83 SO_INQ sol:84
			IP_TOS ip:1 IP_TTL ip:2 IP_RECVOPTS ip:6 IP_RETOPTS ip:7 IP_PKTINFO ip:8 IP_MTU_DISCOVER ip:10
			IP_RECVERR ip:11 IP_RECVTTL ip:12 IP_RECVTOS ip:13 IP_FREEBIND ip:15 IP_PASSSEC ip:18
			IP_RECVORIGDSTADDR ip:20 IP_MINTTL ip:21 IP_NODEFRAG ip:22 IP_CHECKSUM ip:23
			IP_BIND_ADDRESS_NO_PORT ip:24 IP_RECVFRAGSIZE ip:25 IP_RECVERR_RFC4884 ip:26 IP_MULTICAST_TTL ip:33
			IP_MULTICAST_LOOP ip:34 IP_MULTICAST_ALL ip:49 IP_LOCAL_PORT_RANGE ip:51
			IPV6_CHECKSUM ipv6:7 IPV6_FLOWINFO ipv6:11 IPV6_UNICAST_HOPS ipv6:16 IPV6_MULTICAST_HOPS ipv6:18
			IPV6_MULTICAST_LOOP ipv6:19 IPV6_MTU_DISCOVER ipv6:23 IPV6_MTU ipv6:24 IPV6_RECVERR ipv6:25
			IPV6_V6ONLY ipv6:26 IPV6_MULTICAST_ALL ipv6:29 IPV6_RECVERR_RFC4884 ipv6:31 IPV6_FLOWINFO_SEND ipv6:33
			IPV6_RECVPKTINFO ipv6:49 IPV6_RECVHOPLIMIT ipv6:51 IPV6_RECVHOPOPTS ipv6:53 IPV6_RECVRTHDR ipv6:56
			IPV6_RECVDSTOPTS ipv6:58 IPV6_RECVPATHMTU ipv6:60 IPV6_DONTFRAG ipv6:62 IPV6_RECVTCLASS ipv6:66
			IPV6_TCLASS ipv6:67 IPV6_AUTOFLOWLABEL ipv6:70 IPV6_ADDR_PREFERENCES ipv6:72 IPV6_MINHOPCOUNT ipv6:73
			IPV6_RECVORIGDSTADDR ipv6:74 IPV6_RECVFRAGSIZE ipv6:77 IPV6_FREEBIND ipv6:78
			TCP_NODELAY tcp:1 TCP_MAXSEG tcp:2 TCP_CORK tcp:3 TCP_KEEPIDLE tcp:4 TCP_KEEPINTVL tcp:5
			TCP_KEEPCNT tcp:6 TCP_SYNCNT tcp:7 TCP_LINGER2 tcp:8 TCP_DEFER_ACCEPT tcp:9 TCP_WINDOW_CLAMP tcp:10
			TCP_QUICKACK tcp:12 TCP_CONGESTION tcp:13 TCP_MD5SIG tcp:14 TCP_THIN_LINEAR_TIMEOUTS tcp:16
			TCP_THIN_DUPACK tcp:17 TCP_USER_TIMEOUT tcp:18 TCP_FASTOPEN tcp:23 TCP_NOTSENT_LOWAT tcp:25
			TCP_SAVE_SYN tcp:27 TCP_FASTOPEN_CONNECT tcp:30 TCP_MD5SIG_EXT tcp:32 TCP_FASTOPEN_KEY tcp:33
			TCP_FASTOPEN_NO_COOKIE tcp:34 TCP_INQ tcp:36 TCP_TX_DELAY tcp:37
			UDP_CORK udp:1 UDP_NO_CHECK6_TX udp:101 UDP_NO_CHECK6_RX udp:102 UDP_SEGMENT udp:103 UDP_GRO udp:104
			ICMP_FILTER raw:1 ICMPV6_FILTER icmpv6:1 NETLINK_ADD_MEMBERSHIP netlink:1
			NETLINK_DROP_MEMBERSHIP netlink:2 NETLINK_PKTINFO netlink:3 NETLINK_BROADCAST_ERROR netlink:4
			NETLINK_NO_ENOBUFS netlink:5 NETLINK_LISTEN_ALL_NSID netlink:8 NETLINK_CAP_ACK netlink:10
			NETLINK_EXT_ACK netlink:11 NETLINK_GET_STRICT_CHK netlink:12 ALG_SET_KEY alg:1
			ALG_SET_AEAD_AUTHSIZE alg:5 SO_VM_SOCKETS_BUFFER_SIZE vsock:0
			SO_VM_SOCKETS_BUFFER_MIN_SIZE vsock:1 SO_VM_SOCKETS_BUFFER_MAX_SIZE vsock:2
			SO_VM_SOCKETS_CONNECT_TIMEOUT_OLD vsock:6 SO_VM_SOCKETS_CONNECT_TIMEOUT_NEW vsock:8`},
		{AccountOpen, opensHosts, multicast, `IP_MULTICAST_IF ip:32 IP_ADD_MEMBERSHIP ip:35 IP_DROP_MEMBERSHIP ip:36
			IP_UNBLOCK_SOURCE ip:37 IP_BLOCK_SOURCE ip:38 IP_ADD_SOURCE_MEMBERSHIP ip:39
			IP_DROP_SOURCE_MEMBERSHIP ip:40 IP_MSFILTER ip:41 MCAST_JOIN_GROUP ip:42 MCAST_BLOCK_SOURCE ip:43
			MCAST_UNBLOCK_SOURCE ip:44 MCAST_LEAVE_GROUP ip:45 MCAST_JOIN_SOURCE_GROUP ip:46
			MCAST_LEAVE_SOURCE_GROUP ip:47 MCAST_MSFILTER ip:48 IPV6_MULTICAST_IF ipv6:17
			IPV6_ADD_MEMBERSHIP ipv6:20 IPV6_DROP_MEMBERSHIP ipv6:21 IPV6_JOIN_ANYCAST ipv6:27
			IPV6_LEAVE_ANYCAST ipv6:28 MCAST_JOIN_GROUP ipv6:42 MCAST_BLOCK_SOURCE ipv6:43
			MCAST_UNBLOCK_SOURCE ipv6:44 MCAST_LEAVE_GROUP ipv6:45 MCAST_JOIN_SOURCE_GROUP ipv6:46
			MCAST_LEAVE_SOURCE_GROUP ipv6:47 MCAST_MSFILTER ipv6:48`},
		{AccountOpen, opensHosts, otherWay, `SO_DONTROUTE sol:5 SO_BINDTODEVICE sol:25 SO_MARK sol:36
			SO_CNX_ADVICE sol:53 SO_BINDTOIFINDEX sol:62 IP_HDRINCL ip:3 IP_OPTIONS ip:4
			IP_ROUTER_ALERT ip:5 IP_IPSEC_POLICY ip:16 IP_XFRM_POLICY ip:17 IP_TRANSPARENT ip:19
			IP_UNICAST_IF ip:50 IPT_SO_SET_REPLACE ip:64 IPT_SO_SET_ADD_COUNTERS ip:65
			IPV6_ADDRFORM ipv6:1 IPV6_2292PKTOPTIONS ipv6:6 IPV6_NEXTHOP ipv6:9 IPV6_ROUTER_ALERT ipv6:22
			IPV6_FLOWLABEL_MGR ipv6:32 IPV6_IPSEC_POLICY ipv6:34 IPV6_XFRM_POLICY ipv6:35 IPV6_HDRINCL ipv6:36
			IPV6_PKTINFO ipv6:50 IPV6_HOPLIMIT ipv6:52 IPV6_HOPOPTS ipv6:54 IPV6_RTHDRDSTOPTS ipv6:55
			IPV6_RTHDR ipv6:57 IPV6_DSTOPTS ipv6:59 IP6T_SO_SET_REPLACE ipv6:64 IP6T_SO_SET_ADD_COUNTERS ipv6:65
			IPV6_TRANSPARENT ipv6:75 IPV6_UNICAST_IF ipv6:76 TCP_REPAIR tcp:19 TCP_REPAIR_QUEUE tcp:20
			TCP_QUEUE_SEQ tcp:21 TCP_REPAIR_OPTIONS tcp:22 TCP_REPAIR_WINDOW tcp:29 TCP_ULP tcp:31
			UDP_ENCAP udp:100`},
	}},
	{call: "io_uring_register", groups: []operationGroup{
		{AccountOwn, nil, descriptors, `IORING_REGISTER_BUFFERS 0 IORING_UNREGISTER_BUFFERS 1 IORING_REGISTER_FILES 2
			IORING_UNREGISTER_FILES 3 IORING_REGISTER_EVENTFD 4 IORING_UNREGISTER_EVENTFD 5
			IORING_REGISTER_FILES_UPDATE 6 IORING_REGISTER_EVENTFD_ASYNC 7 IORING_REGISTER_PROBE 8
			IORING_REGISTER_PERSONALITY 9 IORING_UNREGISTER_PERSONALITY 10 IORING_REGISTER_RESTRICTIONS 11
			IORING_REGISTER_ENABLE_RINGS 12 IORING_REGISTER_FILES2 13 IORING_REGISTER_FILES_UPDATE2 14
			IORING_REGISTER_BUFFERS2 15 IORING_REGISTER_BUFFERS_UPDATE 16 IORING_REGISTER_IOWQ_AFF 17
			IORING_UNREGISTER_IOWQ_AFF 18 IORING_REGISTER_IOWQ_MAX_WORKERS 19 IORING_REGISTER_RING_FDS 20
			IORING_UNREGISTER_RING_FDS 21 IORING_REGISTER_PBUF_RING 22 IORING_UNREGISTER_PBUF_RING 23
			IORING_REGISTER_SYNC_CANCEL 24 IORING_REGISTER_FILE_ALLOC_RANGE 25 IORING_REGISTER_PBUF_STATUS 26
			IORING_REGISTER_NAPI 27 IORING_UNREGISTER_NAPI 28 IORING_REGISTER_CLOCK 29
			IORING_REGISTER_CLONE_BUFFERS 30 IORING_REGISTER_RESIZE_RINGS 33 IORING_REGISTER_MEM_REGION 34`},
	}},
	{call: "syslog", groups: []operationGroup{
		{AccountOwn, nil, reads, `CLOSE 0 OPEN 1 READ 2 READ_ALL 3 SIZE_UNREAD 9 SIZE_BUFFER 10`},
		{AccountOpen, opensPrivilege, "it changes the kernel's log", `READ_CLEAR 4 CLEAR 5 CONSOLE_OFF 6 CONSOLE_ON 7
			CONSOLE_LEVEL 8`},
	}},
	{call: "personality", claims: opensPrograms, why: "it changes how the process, and what it starts, loads programs",
		groups: []operationGroup{{AccountOwn, nil, asks, `query 0xffffffff`}}},
	{call: "clone flag", name: flagName, groups: []operationGroup{
		{AccountRecorded, nil, byHook, `CLONE_VM 0x100 CLONE_FS 0x200 CLONE_FILES 0x400 CLONE_SIGHAND 0x800
			CLONE_PIDFD 0x1000 CLONE_PTRACE 0x2000 CLONE_VFORK 0x4000 CLONE_PARENT 0x8000 CLONE_THREAD 0x10000
			CLONE_SYSVSEM 0x40000 CLONE_SETTLS 0x80000 CLONE_PARENT_SETTID 0x100000 CLONE_CHILD_CLEARTID 0x200000
			CLONE_DETACHED 0x400000 CLONE_UNTRACED 0x800000 CLONE_CHILD_SETTID 0x1000000 CLONE_IO 0x80000000
			CLONE_CLEAR_SIGHAND 0x100000000 CLONE_INTO_CGROUP 0x200000000`},
		{AccountRecorded, nil, asLine, `CLONE_NEWTIME 0x80 CLONE_NEWNS 0x20000 CLONE_NEWCGROUP 0x2000000
			CLONE_NEWUTS 0x4000000 CLONE_NEWIPC 0x8000000 CLONE_NEWUSER 0x10000000 CLONE_NEWPID 0x20000000
			CLONE_NEWNET 0x40000000`},
	}},
	{call: "control message", name: optionName, groups: []operationGroup{
		{AccountOwn, nil, "it says how the message is sent; to whom stays the same", `SCM_RIGHTS sol:1
			SCM_CREDENTIALS sol:2 SO_PRIORITY sol:12 SO_TIMESTAMPING sol:37 SCM_TXTIME sol:61
			SO_TIMESTAMPING_NEW sol:65 SCM_TS_OPT_ID sol:81 IP_TOS ip:1 IP_TTL ip:2 IP_PROTOCOL ip:52
			IPV6_FLOWINFO ipv6:11 IPV6_2292HOPLIMIT ipv6:8 IPV6_HOPLIMIT ipv6:52 IPV6_DONTFRAG ipv6:62
			IPV6_TCLASS ipv6:67 UDP_SEGMENT udp:103 ALG_SET_IV alg:2 ALG_SET_OP alg:3 ALG_SET_AEAD_ASSOCLEN alg:4`},
		{AccountOpen, opensHosts, otherWay, `SO_MARK sol:36 IP_RETOPTS ip:7 IP_PKTINFO ip:8 IPV6_2292PKTINFO ipv6:2
			IPV6_2292HOPOPTS ipv6:3 IPV6_2292DSTOPTS ipv6:4 IPV6_2292RTHDR ipv6:5 IPV6_PKTINFO ipv6:50
			IPV6_HOPOPTS ipv6:54 IPV6_RTHDRDSTOPTS ipv6:55 IPV6_RTHDR ipv6:57 IPV6_DSTOPTS ipv6:59`},
	}},
	{call: "netlink", name: messageName, groups: []operationGroup{
		{AccountOwn, nil, reads, `NLMSG_NOOP route:1 NLMSG_ERROR route:2 NLMSG_DONE route:3 RTM_GETLINK route:18
			RTM_GETADDR route:22 RTM_GETROUTE route:26 RTM_GETNEIGH route:30 RTM_GETRULE route:34 RTM_GETQDISC route:38
			RTM_GETTCLASS route:42 RTM_GETTFILTER route:46 RTM_GETACTION route:50 RTM_GETMULTICAST route:58
			RTM_GETANYCAST route:62 RTM_GETNEIGHTBL route:66 RTM_GETADDRLABEL route:74 RTM_GETDCB route:78
			RTM_GETNETCONF route:82 RTM_GETMDB route:86 RTM_GETNSID route:90 RTM_GETSTATS route:94
			RTM_GETCHAIN route:102 RTM_GETNEXTHOP route:106 RTM_GETLINKPROP route:110 RTM_GETVLAN route:114
			RTM_GETNEXTHOPBUCKET route:118 RTM_GETTUNNEL route:122
			TCPDIAG_GETSOCK diag:18 DCCPDIAG_GETSOCK diag:19 SOCK_DIAG_BY_FAMILY diag:20 AUDIT_GET audit:1000
			AUDIT_LIST_RULES audit:1013 AUDIT_SIGNAL_INFO audit:1010 AUDIT_GET_FEATURE audit:1019
			NFT_MSG_GETTABLE netfilter:2561 NFT_MSG_GETCHAIN netfilter:2564 NFT_MSG_GETRULE netfilter:2567
			NFT_MSG_GETSET netfilter:2570 NFT_MSG_GETSETELEM netfilter:2573 NFT_MSG_GETGEN netfilter:2576
			NFT_MSG_GETOBJ netfilter:2579 NFT_MSG_GETFLOWTABLE netfilter:2583 NFNL_MSG_COMPAT_GET netfilter:2816
			NFNL_MSG_BATCH_BEGIN netfilter:16 NFNL_MSG_BATCH_END netfilter:17
			CTRL_CMD_GETFAMILY generic:0x30010 CTRL_CMD_GETPOLICY generic:0xa0010`},
		{AccountOwn, nil, "it sets up the loopback device, over which no packet leaves the host", `
			RTM_NEWLINK-of-lo route:0x10010 RTM_SETLINK-of-lo route:0x10013 RTM_NEWADDR-of-lo route:0x10014`},
		{AccountOpen, opensHosts, "it changes the settings of a network", `RTM_NEWLINK route:16 RTM_DELLINK route:17
			RTM_SETLINK route:19 RTM_NEWADDR route:20 RTM_DELADDR route:21 RTM_NEWROUTE route:24 RTM_DELROUTE route:25
			RTM_NEWNEIGH route:28 RTM_DELNEIGH route:29 RTM_NEWRULE route:32 RTM_DELRULE route:33 RTM_NEWQDISC route:36
			RTM_DELQDISC route:37 RTM_NEWTCLASS route:40 RTM_DELTCLASS route:41 RTM_NEWTFILTER route:44
			RTM_DELTFILTER route:45 RTM_NEWACTION route:48 RTM_DELACTION route:49 RTM_SETNEIGHTBL route:67
			RTM_NEWADDRLABEL route:72 RTM_DELADDRLABEL route:73 RTM_SETDCB route:79 RTM_NEWNETCONF route:80
			RTM_NEWMDB route:84 RTM_DELMDB route:85 RTM_NEWNSID route:88 RTM_SETSTATS route:95 RTM_NEWCHAIN route:100
			RTM_DELCHAIN route:101 RTM_NEWNEXTHOP route:104 RTM_DELNEXTHOP route:105 RTM_NEWLINKPROP route:108
			RTM_DELLINKPROP route:109 RTM_NEWVLAN route:112 RTM_DELVLAN route:113 RTM_NEWTUNNEL route:120
			RTM_DELTUNNEL route:121 SOCK_DESTROY diag:21 NFT_MSG_NEWTABLE netfilter:2560
			NFT_MSG_DELTABLE netfilter:2562 NFT_MSG_NEWCHAIN netfilter:2563 NFT_MSG_DELCHAIN netfilter:2565
			NFT_MSG_NEWRULE netfilter:2566 NFT_MSG_DELRULE netfilter:2568 NFT_MSG_NEWSET netfilter:2569
			NFT_MSG_DELSET netfilter:2571 NFT_MSG_NEWSETELEM netfilter:2572 NFT_MSG_DELSETELEM netfilter:2574`},
		{AccountOpen, opensPrivilege, "it writes to the log of audits", `AUDIT_USER audit:1005
			AUDIT_USER_message audit:1100`},
		{AccountOpen, opensPrivilege, "it changes what is written to the log of audits", `AUDIT_SET audit:1001
			AUDIT_ADD_RULE audit:1011 AUDIT_DEL_RULE audit:1012 AUDIT_TRIM audit:1014 AUDIT_MAKE_EQUIV audit:1015
			AUDIT_TTY_SET audit:1017 AUDIT_SET_FEATURE audit:1018`},
	}},
	{call: "cgroup hierarchy", groups: []operationGroup{
		{AccountOpen, everything, "its options can name a program that the kernel starts (release_agent)",
			`made-or-changed 1`},
	}},
}

// flagName names flags of clone without a row.
func flagName(op uint64) string { return fmt.Sprintf("%#x", op) }

// unseenMessage is UNSEEN of bpf/netlink.h.
const unseenMessage = 1<<32 - 1

// messageName names a message of netlink without a row.
func messageName(op uint64) string {
	if uint32(op) == unseenMessage {
		return "message that the kernel was not seen to read"
	}
	name := fmt.Sprintf("family %d, message %d", op>>32&0xffff, uint16(op))
	if command := op >> 16 & 0xffff; command != 0 {
		name += fmt.Sprintf(", command %d", command)
	}
	return name
}

// ioctlName names a request without a row, as strace does.
func ioctlName(op uint64) string {
	kind := objectKinds[op>>48&7]
	if kind == "other" {
		kind = "descriptor of another kind"
	}
	return fmt.Sprintf("0x%x on a %s", uint32(op), kind)
}

// optionName names an option without a row.
func optionName(op uint64) string {
	return fmt.Sprintf("level %d, option %d", op>>32&0xffff, uint32(op))
}
