# Made by trimtab; nothing here was applied. Read it into the module that makes your instance groups:
#   for_each = var.trimtab_instance_groups
# aws: aws_autoscaling_group: min_size, max_size; instance_type and spot in its launch template or mixed_instances_policy
# The groups that these replace shrink by the orders in orders/, after the new machines have held.

variable "trimtab_instance_groups" {
  description = "Instance groups of the plan, by name: what machines, how many, and how they are held."
  type = map(object({
    provider      = string
    region        = string
    instance_type = string
    spot          = bool
    min_size      = number
    max_size      = number
    idle_after_s  = number
    workloads     = list(string)
  }))
  default = {
    # spot-aws-llm-api
    "trimtab-p4de-24xlarge-us-east-1-on-demand-mps-24-services" = {
      provider      = "aws"
      region        = "us-east-1"
      instance_type = "p4de.24xlarge"
      spot          = false
      min_size      = 1
      max_size      = 2
      idle_after_s  = 600
      workloads     = ["aws/llm-api"]
    }
  }

  validation {
    condition     = alltrue([for group in var.trimtab_instance_groups : group.min_size <= group.max_size])
    error_message = "A group's min_size is above its max_size."
  }
}
