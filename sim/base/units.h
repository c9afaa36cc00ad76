/* units.h: the only place for factors between units. */
#ifndef DTP_SIM_BASE_UNITS_H
#define DTP_SIM_BASE_UNITS_H

#define DTP_KILO 1e3
#define DTP_MEGA 1e6
#define DTP_GIGA 1e9
#define DTP_TERA 1e12
#define DTP_PETA 1e15
#define DTP_MILLI 1e-3
#define DTP_MICRO 1e-6
#define DTP_NANO 1e-9
#define DTP_KIB 1024.0
#define DTP_MIB 1048576.0
#define DTP_GIB 1073741824.0
#define DTP_TIB 1099511627776.0
#define DTP_BITS_PER_BYTE 8.0
#define DTP_S_PER_MINUTE 60.0
#define DTP_S_PER_HOUR 3600.0
#define DTP_S_PER_DAY 86400.0

#endif
