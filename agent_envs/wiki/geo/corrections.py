"""Corrections to the sources of the `geo` corpus: wrong, outdated and missing facts. Keys are ISO 3166 alpha-3 codes.

The truth of a question is what this wiki says; these tables keep what it says close to the world's.
"""

CAPITALS: dict[str, str] = {
    "BDI": "Gitega",
    "BES": "Kralendijk",
    "HKG": "",  # a city without a capital, as Macao
    "KAZ": "Astana",
    "LKA": "Sri Jayawardenepura Kotte",
    "SWZ": "Mbabane",
    "USA": "Washington, D.C.",
    "VAT": "Vatican City",
}
"""Capitals that are stale or not one name."""

NOT_BORDERS: frozenset[frozenset[str]] = frozenset(
    frozenset(pair.split("-")) for pair in ("CYP-GBR", "IND-AFG", "KWT-IRN", "MMR-BTN", "SRB-ALB", "SUR-FRA", "TCD-SSD")
)
"""One-sided borders in the source that do not exist; all other one-sided ones are made mutual."""

CODES: dict[str, str] = {"IT": "ITA"}
"""Border codes that are not alpha-3."""

CURRENCIES: dict[str, tuple[str, ...]] = {"BGR": ("EUR",)}
"""Changes of currency that the source does not know yet."""

CAPITALS_ZH: dict[str, str] = {
    "ALB": "地拉那", "AND": "安道尔城", "ARE": "阿布扎比", "ATG": "圣约翰", "AUS": "堪培拉", "BDI": "基特加",
    "BHR": "麦纳麦", "BLZ": "贝尔莫潘", "BOL": "苏克雷", "BRA": "巴西利亚", "BRB": "布里奇敦",
    "BRN": "斯里巴加湾市", "CAN": "渥太华", "CHE": "伯尔尼", "CHN": "北京", "CIV": "亚穆苏克罗",
    "CMR": "雅温得", "COL": "波哥大", "COM": "莫罗尼", "CPV": "普拉亚", "CRI": "圣何塞", "DMA": "罗索",
    "ECU": "基多", "EGY": "开罗", "ERI": "阿斯马拉", "ESH": "阿尤恩", "FJI": "苏瓦", "FRO": "托尔斯港",
    "FSM": "帕利基尔", "GNQ": "马拉博", "GRD": "圣乔治", "GRL": "努克", "GTM": "危地马拉城", "GUM": "阿加尼亚",
    "GUY": "乔治敦", "IND": "新德里", "JAM": "金斯敦", "KAZ": "阿斯塔纳", "KIR": "南塔拉瓦", "KNA": "巴斯特尔",
    "KWT": "科威特城", "LCA": "卡斯特里", "LKA": "科特", "MAR": "拉巴特", "MDA": "基希讷乌", "MDV": "马累",
    "MLT": "瓦莱塔", "MMR": "内比都", "MUS": "路易港", "MWI": "利隆圭", "NCL": "努美阿", "NGA": "阿布贾",
    "NPL": "加德满都", "NRU": "亚伦", "NZL": "惠灵顿", "PAK": "伊斯兰堡", "PAN": "巴拿马城",
    "PLW": "恩吉鲁穆德", "PRY": "亚松森", "PSE": "拉姆安拉", "QAT": "多哈", "SLB": "霍尼亚拉",
    "SLV": "圣萨尔瓦多", "SMR": "圣马力诺市", "STP": "圣多美", "SWZ": "姆巴巴内", "SYC": "维多利亚",
    "TCD": "恩贾梅纳", "TGO": "洛美", "TON": "努库阿洛法", "TTO": "西班牙港", "TUR": "安卡拉", "TZA": "多多马",
    "UKR": "基辅", "USA": "华盛顿", "VAT": "梵蒂冈城", "VCT": "金斯敦", "VNM": "河内", "VUT": "维拉港",
    "YEM": "萨那", "ZAF": "比勒陀利亚",
}  # fmt: skip
"""Chinese names of capitals; the source has only those that name a time zone."""

REGIONS: dict[str, str] = {
    "Western Asia": "145", "Eastern Asia": "030", "Southern Asia": "034", "South-eastern Asia": "035",
    "Central Asia": "143", "Eastern Europe": "151", "Northern Europe": "154", "Western Europe": "155",
    "Southern Europe": "039", "Northern Africa": "015", "Sub-Saharan Africa": "202",
    "Latin America and the Caribbean": "419", "Northern America": "021", "Australia and New Zealand": "053",
    "Melanesia": "054", "Micronesia": "057", "Polynesia": "061",
}  # fmt: skip
"""Region as the source calls it → its UN M49 code, under which the names are found."""
