"""Answers of the price lists, in the shapes that the providers document, with a few rows of each trap."""

import json

AZURE_VM = {"serviceName": "Virtual Machines", "currencyCode": "USD", "unitOfMeasure": "1 Hour", "type": "Consumption",
            "tierMinimumUnits": 0.0, "isPrimaryMeterRegion": True, "effectiveStartDate": "2026-01-01T00:00:00Z",
            "productName": "NCads A100 v4 Series Linux", "armRegionName": "eastus",
            "armSkuName": "Standard_NC24ads_A100_v4", "meterName": "NC24ads A100 v4"}  # fmt: skip


def azure(**changed):
    """Return one item of the Azure list, with some fields otherwise."""
    return {**AZURE_VM, "retailPrice": 3.673, **changed}


AZURE_ITEMS = [
    azure(savingsPlan=[{"term": "1 Year", "retailPrice": 2.7}]),
    azure(meterName="NC24ads A100 v4 Spot", retailPrice=0.91),
    azure(meterName="NC24ads A100 v4 Low Priority", retailPrice=0.73),
    azure(productName="NCads A100 v4 Series Windows", retailPrice=4.777),
    azure(type="DevTestConsumption", retailPrice=3.673),
    azure(type="Reservation", reservationTerm="1 Year", retailPrice=21033.0),
    azure(type="Reservation", reservationTerm="3 Years", retailPrice=1.29),
    azure(type="Reservation", reservationTerm="5 Years", retailPrice=90000.0),
    azure(unitOfMeasure="1/Month", retailPrice=2000.0),
    azure(retailPrice=0.0),
    azure(retailPrice=9.99, effectiveStartDate="2027-01-01T00:00:00Z"),
    azure(retailPrice=8.88, isPrimaryMeterRegion=False, effectiveStartDate="2026-05-01T00:00:00Z"),
    azure(currencyCode="EUR", retailPrice=3.1),
    {"armSkuName": "Standard_NC24ads_A100_v4", "retailPrice": "a lot"},
]


def azure_list(asked):
    """Answer two pages for the A100 type, and an empty one for every other; links name the provider's own host."""
    if asked.query.get("$skip") == "7":
        page = {"Items": AZURE_ITEMS[7:], "NextPageLink": None}
    elif "Standard_NC24ads_A100_v4'" in asked.query.get("$filter", ""):
        page = {
            "Items": AZURE_ITEMS[:7],
            "NextPageLink": "https://prices.azure.com:443/api/retail/prices?$filter=x&$skip=7",
        }
    else:
        page = {"Items": [], "NextPageLink": None}
    return 200, {"Content-Type": "application/json"}, json.dumps(page).encode()


def sku(description, price, *, usage="OnDemand", unit="h", regions=("us-central1",), currency="USD", rate=1, **more):
    """Return one SKU of the Billing Catalog."""
    whole, part = divmod(round(price * 1e9), 10**9)
    money = {"currencyCode": currency, "units": str(whole), "nanos": part}
    tiers = [{"startUsageAmount": 0, "unitPrice": money}]
    pricing = {"pricingExpression": {"usageUnit": unit, "tieredRates": tiers}, "currencyConversionRate": rate, **more}
    return {"description": description, "category": {"usageType": usage}, "serviceRegions": list(regions),
            "pricingInfo": [pricing]}  # fmt: skip


GCP_SKUS = [
    sku("A2 Instance Core running in Americas", 0.031611),
    sku("A2 Instance Ram running in Americas", 0.004237, unit="GiBy.h"),
    sku("Nvidia Tesla A100 GPU running in Americas", 2.933908, effectiveTime="2023-03-24T10:52:50.681Z"),
    sku("Nvidia Tesla A100 80GB GPU running in Iowa", 3.928, EffectiveTime="2023-03-24T10:52:50.681Z"),
    sku("SSD backed Local Storage", 0.08, unit="GiBy.mo"),
    sku("Spot Preemptible A2 Instance Core running in Americas", 0.0158, usage="Preemptible"),
    sku("Spot Preemptible A2 Instance Ram running in Americas", 0.00212, usage="Preemptible", unit="GiBy.h"),
    sku("Nvidia Tesla A100 GPU attached to Spot Preemptible VMs running in Americas", 1.4, usage="Preemptible"),
    sku("Commitment v1: A2 Cpu in Americas for 3 Years", 0.011064, usage="Commit3Yr"),
    sku("Commitment v1: A2 Ram in Americas for 3 Years", 0.001483, usage="Commit3Yr", unit="GiBy.h"),
    sku("Commitment v1: Nvidia Tesla A100 GPU running in Americas for 3 Years", 1.0269, usage="Commit3Yr"),
    sku("A2 Instance Core running in Jakarta", 524.0, regions=("asia-southeast2",), currency="IDR", rate=15000),
    sku("A2 Instance Ram running in Jakarta", 70.0, unit="GiBy.h", regions=("asia-southeast2",), currency="IDR", rate=15000),
    sku("Nvidia Tesla A100 GPU running in Jakarta", 48000.0, regions=("asia-southeast2",), currency="IDR", rate=15000),
    sku("A2 Instance Core running in Nowhere", 0.03, regions=("europe-west4",)),
    sku("A2 Instance Ram running in Nowhere", 0.004, unit="GiBy.h", regions=("europe-west4",)),
    sku("G2 Instance Ram running in Americas", 0.003, unit="GiBy.mo.wrong"),
    sku("T2D AMD Instance Core running in Singapore", 0.03),
    {"description": "half a SKU"},
]  # fmt: skip


def gcp_list(asked):
    """Answer two pages."""
    if asked.query.get("pageToken") == "more":
        page = {"skus": GCP_SKUS[8:], "nextPageToken": ""}
    else:
        page = {"skus": GCP_SKUS[:8], "nextPageToken": "more"}
    return 200, {}, json.dumps(page).encode()


AWS_INDEX = {
    "regions": {
        "us-east-1": {
            "regionCode": "us-east-1",
            "currentVersionUrl": "/offers/v1.0/aws/AmazonEC2/20261101000000/us-east-1/index.json",
        }
    }
}
AWS_COLUMNS = ("SKU", "OfferTermCode", "RateCode", "TermType", "PriceDescription", "EffectiveDate", "Unit", "PricePerUnit",
               "Currency", "LeaseContractLength", "PurchaseOption", "OfferingClass", "Product Family", "Instance Type",
               "Tenancy", "Operating System", "usageType", "operation", "CapacityStatus", "Pre Installed S/W",
               "MarketOption")  # fmt: skip


def aws(**changed):
    """Return one row of an offer file; names of columns with underscores for blanks."""
    row = dict.fromkeys(AWS_COLUMNS, "")
    row |= {"SKU": "S1", "OfferTermCode": "JRTCKXETXF", "TermType": "OnDemand", "Unit": "Hrs", "PricePerUnit": "21.9576",
            "Currency": "USD", "Product Family": "Compute Instance", "Instance Type": "p4d.24xlarge", "Tenancy": "Shared",
            "Operating System": "Linux", "CapacityStatus": "Used", "Pre Installed S/W": "NA",
            "MarketOption": "OnDemand"}  # fmt: skip
    row |= {key.replace("_", " "): value for key, value in changed.items()}
    return ",".join('"' + str(row[column]).replace('"', '""') + '"' for column in AWS_COLUMNS)


def reserved(code, purchase, **changed):
    """Return one row of a reserved term."""
    return aws(TermType="Reserved", OfferTermCode=code, PurchaseOption=purchase,
               **{"LeaseContractLength": "3yr", "OfferingClass": "standard", **changed})  # fmt: skip


AWS_ROWS = [
    aws(),
    aws(Tenancy="Dedicated", PricePerUnit="25.0"),
    aws(Operating_System="Windows", PricePerUnit="26.4"),
    aws(CapacityStatus="UnusedCapacityReservation"),
    aws(CapacityStatus="AllocatedCapacityReservation", PricePerUnit="0.0000000000"),
    aws(MarketOption="CapacityBlock", PricePerUnit="0.0"),
    aws(**{"Pre_Installed_S/W": "SQL Web"}, PricePerUnit="30"),
    aws(Instance_Type="p9.48xlarge", PricePerUnit="99"),
    aws(SKU="S2", Instance_Type="g6.xlarge", PricePerUnit="0.8048"),
    aws(SKU="S3", Instance_Type="g5.xlarge", Currency="CNY", PricePerUnit="6.1"),
    aws(SKU="S4", Instance_Type="g4dn.xlarge", PricePerUnit="n/a"),
    reserved("AAA", "All Upfront", Unit="Quantity", PricePerUnit="200000"),
    reserved("AAA", "All Upfront", PricePerUnit="0.0000000000"),
    reserved("BBB", "Partial Upfront", Unit="Quantity", PricePerUnit="105120"),
    reserved("BBB", "Partial Upfront", PricePerUnit="4.5"),
    reserved("CCC", "No Upfront", OfferingClass="convertible", PricePerUnit="12"),
    reserved("DDD", "No Upfront", LeaseContractLength="1 yr", PricePerUnit="13.9"),
    '"S9","cut","short"',
]
AWS_CSV = "\n".join(
    ['"FormatVersion","v1.0"', '"Disclaimer","for information, only"', '"Publication Date","2026-11-01T00:00:00Z"',
     '"Version","20261101000000"', '"OfferCode","AmazonEC2"', ",".join(f'"{name}"' for name in AWS_COLUMNS), *AWS_ROWS]
)  # fmt: skip
ADVISOR = {
    "global_rate": "<10%",
    "ranges": [{"index": 4, "label": ">20%", "max": 100}, {"index": 0, "label": "<5%", "max": 5}],
    "spot_advisor": {
        "us-east-1": {
            "Linux": {"p4d.24xlarge": {"s": 60, "r": 4}, "g6.xlarge": {"s": -62, "r": 7}},
            "Windows": {"p4d.24xlarge": {"s": 1, "r": 0}},
        }
    },
}


PLAN_INDEX = {
    "regions": [
        {
            "regionCode": "us-east-1",
            "versionUrl": "/savingsPlan/v1.0/aws/AWSComputeSavingsPlan/20261101/us-east-1/index.json",
        }
    ]
}
PLAN_COLUMNS = (
    "SKU", "RateCode", "Unit", "EffectiveDate", "DiscountedRate", "Currency", "DiscountedSKU", "DiscountedServiceCode",
    "DiscountedUsageType", "DiscountedOperation", "PurchaseOption", "LeaseContractLength", "LeaseContractLengthUnit",
    "ServiceCode", "UsageType", "Operation", "Description", "Instance Family", "Location", "Location Type", "Granularity",
    "Product Family", "DiscountedRegionCode", "DiscountedInstanceType",
)  # fmt: skip


def plan_row(rate, years="1", **other):
    """Return a row of a savings plans' file: a Linux hour of a p5.48xlarge under a Compute Savings Plan."""
    row = dict.fromkeys(PLAN_COLUMNS, "")
    row |= {
        "SKU": "PLAN", "Unit": "Hrs", "DiscountedRate": rate, "Currency": "USD", "DiscountedServiceCode": "AmazonEC2",
        "DiscountedUsageType": "BoxUsage:p5.48xlarge", "DiscountedOperation": "RunInstances", "PurchaseOption": "No Upfront",
        "LeaseContractLength": years, "LeaseContractLengthUnit": "year", "Product Family": "ComputeSavingsPlans",
        "DiscountedRegionCode": "us-east-1", "DiscountedInstanceType": "p5.48xlarge",
    }  # fmt: skip
    return ",".join({**row, **other}.values())


PLAN_CSV = "\n".join(
    ["FormatVersion,v1.0", "Disclaimer,for information only", "Publication Date,2026-11-01T00:00:00Z", "Version,20261101",
     "OfferCode,AmazonComputeSavingsPlan", ",".join(PLAN_COLUMNS),
     plan_row("41.5"), plan_row("29.25", "3"),
     plan_row("38.0", **{"Product Family": "EC2InstanceSavingsPlans"}), plan_row("36.0", PurchaseOption="All Upfront"),
     plan_row("77.0", DiscountedOperation="RunInstances:0002"), plan_row("41.5", DiscountedUsageType="UnusedBox:p5.48xlarge"),
     plan_row("n/a"), plan_row("0"), "PLAN,cut,short"]
)  # fmt: skip


def aws_lists(asked):
    """Answer the index of regions, the offer file of one, its savings plans and the Spot Advisor."""
    if asked.path.startswith("/savingsPlan"):
        body = json.dumps(PLAN_INDEX) if asked.path.endswith("region_index.json") else PLAN_CSV
        return 200, {}, body.encode()
    if asked.path.endswith("region_index.json"):
        return 200, {}, json.dumps(AWS_INDEX).encode()
    if asked.path.endswith("us-east-1/index.csv"):
        return 200, {}, AWS_CSV.encode()
    if asked.path == "/spot-advisor-data.json":
        return 200, {}, json.dumps(ADVISOR).encode()
    return 404, {}, b"no such thing"


def everything(asked):
    """Answer every list from one address."""
    if asked.path.startswith("/api/retail"):
        return azure_list(asked)
    return gcp_list(asked) if asked.path.startswith("/v1/services") else aws_lists(asked)
